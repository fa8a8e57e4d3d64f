"""Intervals against tabulated values, and by how often they hold what they should."""

from __future__ import annotations

import random
from statistics import mean

import pytest
from scipy.stats import bootstrap as scipy_bootstrap

from contrastive_reasoning.evaluation import bootstrap, mean_interval, wilson


@pytest.mark.parametrize(
    ("successes", "total", "low", "high"),
    [(0, 10, 0.0, 0.27753), (10, 10, 0.72247, 1.0), (5, 10, 0.23659, 0.76341), (15, 148, 0.06235, 0.16049)],
)
def test_wilson_values(successes: int, total: int, low: float, high: float) -> None:
    assert wilson(successes, total) == pytest.approx((low, high), abs=1e-4)


def test_wilson_holds_the_truth_about_95_times_in_100() -> None:
    rng, hits = random.Random(0), 0
    for _ in range(2000):
        low, high = wilson(sum(rng.random() < 0.07 for _ in range(200)), 200)
        hits += low <= 0.07 <= high
    assert 0.93 < hits / 2000 < 0.975


def test_bootstrap_agrees_with_scipys_percentile_interval() -> None:
    rng = random.Random(1)
    values = [rng.choice([0.0, 0.125, 0.5, 1.0]) for _ in range(150)]
    reference = scipy_bootstrap((values,), mean, method="percentile", n_resamples=2000, rng=0, vectorized=False)
    expected = reference.confidence_interval
    assert bootstrap(values, seed=0) == pytest.approx((expected.low, expected.high), abs=0.01)
    assert bootstrap(values, seed=0) == bootstrap(values, seed=0)
    assert bootstrap([0.25] * 9, seed=0) == (0.25, 0.25)


def test_a_mean_of_zeros_and_ones_is_a_share() -> None:
    assert mean_interval([1.0, 0.0, 0.0, 1.0], seed=0) == wilson(2, 4)
    assert mean_interval([0.5, 0.0, 1.0], seed=0) == bootstrap([0.5, 0.0, 1.0], seed=0)


def test_no_values_are_refused() -> None:
    for interval in (lambda values: bootstrap(values, seed=0), lambda values: wilson(0, len(values))):
        with pytest.raises(ValueError, match=r"got 0 of 0|at least one value"):
            interval([])

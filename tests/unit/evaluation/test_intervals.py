"""Intervals against tabulated values and reference implementations, and their coverage."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from statistics import mean

import pytest
import torch
from jaxtyping import TypeCheckError
from scipy.stats import bootstrap as scipy_bootstrap, mannwhitneyu
from torch import Tensor

from contrastive_reasoning.evaluation import (
    bootstrap,
    interquartile_mean,
    mean_interval,
    nested_difference,
    nested_mean,
    probability_of_improvement,
    wilson,
)


@pytest.mark.parametrize(
    ("successes", "total", "low", "high"),
    [(0, 10, 0.0, 0.27753), (10, 10, 0.72247, 1.0), (5, 10, 0.23659, 0.76341), (15, 148, 0.06235, 0.16049)],
)
def test_wilson_matches_tabulated_values(successes: int, total: int, low: float, high: float) -> None:
    assert wilson(successes, total) == pytest.approx((low, high), abs=1e-4)


def test_wilson_covers_the_true_share_in_about_95_percent() -> None:
    rng, hits = random.Random(0), 0
    for _ in range(2000):
        low, high = wilson(sum(rng.random() < 0.07 for _ in range(200)), 200)
        hits += low <= 0.07 <= high
    assert 0.93 < hits / 2000 < 0.975


def test_bootstrap_matches_scipy_percentile_interval() -> None:
    rng = random.Random(1)
    values = [rng.choice([0.0, 0.125, 0.5, 1.0]) for _ in range(150)]
    reference = scipy_bootstrap((values,), mean, method="percentile", n_resamples=2000, rng=0, vectorized=False)
    expected = reference.confidence_interval
    assert bootstrap(values, seed=0) == pytest.approx((expected.low, expected.high), abs=0.01)
    assert bootstrap(values, seed=0) == bootstrap(values, seed=0)
    assert bootstrap([0.25] * 9, seed=0) == (0.25, 0.25)


def test_mean_interval_uses_wilson_for_binary_values() -> None:
    assert mean_interval([1.0, 0.0, 0.0, 1.0], seed=0) == wilson(2, 4)
    assert mean_interval([0.5, 0.0, 1.0], seed=0) == bootstrap([0.5, 0.0, 1.0], seed=0)


def test_intervals_reject_empty_values() -> None:
    for interval in (lambda values: bootstrap(values, seed=0), lambda values: wilson(0, len(values))):
        with pytest.raises(ValueError, match=r"got 0 of 0|at least one value"):
            interval([])


SEEDS, PROBLEMS, RESAMPLES = 4, 30, 4000


def scores(seed: int, *, seeds: int = SEEDS, level: float = 0.5) -> Tensor:
    """Success shares of eight samples, for runs of different success rates."""
    generator = torch.Generator().manual_seed(seed)
    chance = (level + 0.1 * torch.randn(seeds, 1, generator=generator)).clamp(0, 1).expand(seeds, PROBLEMS)
    return torch.stack([torch.bernoulli(chance, generator=generator) for _ in range(8)]).double().mean(0)


def percentile(values: Sequence[float], share: float) -> float:
    """Linear interpolation between the sorted values."""
    ordered, place = sorted(values), share * (len(values) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def looped_difference(ours: Tensor, baseline: Tensor, *, same_seeds: bool) -> tuple[float, float]:
    """The definition: resample seeds, then problems; all runs share one draw of problems."""
    x, y, rng, draws = ours.tolist(), baseline.tolist(), random.Random(0), []
    for _ in range(RESAMPLES):
        seeds = [rng.randrange(len(x)) for _ in x]
        others = seeds if same_seeds else [rng.randrange(len(y)) for _ in y]
        problems = [rng.randrange(PROBLEMS) for _ in range(PROBLEMS)]
        left = mean(x[seed][problem] for seed in seeds for problem in problems)
        draws.append(left - mean(y[seed][problem] for seed in others for problem in problems))
    return percentile(draws, 0.025), percentile(draws, 0.975)


@pytest.mark.parametrize(
    ("ours", "baseline", "same_seeds"),
    [
        (scores(1, level=0.6), scores(2), True),
        (scores(1, level=0.6), scores(2, seeds=3), False),
        (scores(1), torch.zeros(1, PROBLEMS, dtype=torch.float64), False),
    ],
)
def test_nested_difference_matches_resampling_in_loops(ours: Tensor, baseline: Tensor, same_seeds: bool) -> None:
    found = nested_difference(ours, baseline, same_seeds=same_seeds, resamples=RESAMPLES, seed=0)
    assert found.value == pytest.approx((ours.mean() - baseline.mean()).item())
    # The draws differ, so the ends of the intervals differ by their own error, about a twentieth of the width.
    expected = looped_difference(ours, baseline, same_seeds=same_seeds)
    assert (found.low, found.high) == pytest.approx(expected, abs=(found.high - found.low) / 8)
    if not baseline.any():
        assert nested_mean(ours, resamples=RESAMPLES, seed=0) == found


def test_paired_difference_cancels_the_difficulty_of_problems() -> None:
    """Problems of different difficulty widen the interval of a mean, but not that of a paired difference."""
    hard = torch.linspace(0, 0.8, PROBLEMS, dtype=torch.float64).expand(SEEDS, PROBLEMS)
    shifted = nested_difference(hard + 0.1, hard, same_seeds=True, resamples=200, seed=0)
    assert tuple(shifted) == pytest.approx((0.1, 0.1, 0.1))
    assert nested_mean(hard, resamples=200, seed=0).high > hard.mean() + 0.05


def test_same_seeds_cancel_seed_effects_in_nested_difference() -> None:
    luck = torch.tensor([[0.0], [0.3], [-0.2], [0.1]], dtype=torch.float64).expand(4, 5)
    found = nested_difference(luck + 0.5, luck, same_seeds=True, resamples=200, seed=0)
    assert (found.low, found.high) == pytest.approx((0.5, 0.5))
    apart = nested_difference(luck + 0.5, luck, same_seeds=False, resamples=200, seed=0)
    assert apart.high - apart.low > 0.1


def test_interquartile_mean_trims_a_quarter_at_each_end_of_every_draw() -> None:
    uneven = torch.arange(10.0)[None]  # a quarter of ten scores, rounded down, is two
    assert interquartile_mean(uneven, resamples=10, seed=0).value == mean([2, 3, 4, 5, 6, 7])
    table, rng, draws = scores(3), random.Random(0), []
    for _ in range(RESAMPLES):
        seeds = [rng.randrange(SEEDS) for _ in range(SEEDS)]
        problems = [rng.randrange(PROBLEMS) for _ in range(PROBLEMS)]
        drawn = sorted(table[seed, problem].item() for seed in seeds for problem in problems)
        quarter = len(drawn) // 4
        draws.append(mean(drawn[quarter:-quarter]))
    found = interquartile_mean(table, resamples=RESAMPLES, seed=0)
    width = found.high - found.low
    assert (found.low, found.high) == pytest.approx((percentile(draws, 0.025), percentile(draws, 0.975)), abs=width / 8)


def test_probability_of_improvement_equals_mean_mann_whitney_u() -> None:
    """As in rliable: U over the number of pairs of runs, averaged over tasks; ties count half."""
    ours, baseline = scores(1, level=0.55)[:, :6], scores(2, seeds=3)[:, :6]
    u = [mannwhitneyu(ours[:, task], baseline[:, task]).statistic / (SEEDS * 3) for task in range(6)]
    assert probability_of_improvement(ours, baseline, resamples=10, seed=0).value == pytest.approx(mean(u))


def test_probability_of_improvement_interval_matches_loops() -> None:
    ours, baseline, rng, draws = [0.1, 0.4, 0.5, 0.7], [0.3, 0.4, 0.2], random.Random(0), []
    for _ in range(RESAMPLES):
        left, right = rng.choices(ours, k=4), rng.choices(baseline, k=3)
        pairs = [(x, y) for x in left for y in right]
        draws.append(mean((x > y) + 0.5 * (x == y) for x, y in pairs))
    x, y = (torch.tensor(values, dtype=torch.float64)[:, None] for values in (ours, baseline))
    found = probability_of_improvement(x, y, resamples=RESAMPLES, seed=0)
    assert found.value == pytest.approx((0 + 2.5 + 3 + 3) / 12)  # one term for each of our runs
    assert (found.low, found.high) == pytest.approx((percentile(draws, 0.025), percentile(draws, 0.975)), abs=0.05)


@pytest.mark.parametrize(
    ("spread", "seeds", "least", "most"), [(0.0, 5, 0.95, 1.0), (0.1, 10, 0.88, 0.98), (0.3, 5, 0.76, 0.92)]
)
def test_coverage_of_nested_difference_lies_in_the_expected_range(
    spread: float, seeds: int, least: float, most: float
) -> None:
    """Coverage in 200 studies of 300 problems: nearly 1 if seeds do not differ, too low if few seeds differ much.

    A run solves a problem with probability Φ(level + ease), ease ~ N(0, 1), level ~ N(shift, spread²).
    """
    held, truth = 0, 0.5 * math.erf(0.2 / math.sqrt(2 * (2 + spread**2)))
    generator = torch.Generator().manual_seed(0)
    for study in range(200):
        ease = torch.randn(300, generator=generator, dtype=torch.float64)
        baseline, ours = (
            torch.bernoulli(
                torch.special.ndtr(shift + spread * torch.randn(seeds, 1, generator=generator).double() + ease),
                generator=generator,
            )
            for shift in (0.0, 0.2)
        )
        found = nested_difference(ours, baseline, same_seeds=True, resamples=300, seed=study)
        held += found.low <= truth <= found.high
    assert least <= held / 200 <= most


@pytest.mark.parametrize(
    ("ours", "baseline", "same_seeds", "named"),
    [
        ((2, 3), (3, 3), True, "same_seeds.*2.*3"),
        ((0, 3), (2, 3), False, r"\(0, 3\)"),
        ((2, 3), (2, 4), False, "problem"),
    ],
)
def test_nested_difference_rejects_mismatched_shapes(
    ours: tuple[int, int], baseline: tuple[int, int], same_seeds: bool, named: str
) -> None:
    with pytest.raises((TypeCheckError, ValueError), match=named):  # the shapes of the annotations raise the former
        nested_difference(torch.zeros(ours), torch.zeros(baseline), same_seeds=same_seeds, resamples=5, seed=0)

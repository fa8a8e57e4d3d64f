"""Means, differences and their intervals over seeds, against values computed by hand."""

from __future__ import annotations

import math
import random
from statistics import mean, stdev

import pytest
from scipy import stats

from experiments.analysis.statistics import (
    difference,
    difference_over_shared_seeds,
    equivalence,
    holm,
    over_seeds,
    paired_p,
    seeds_to_compare,
)

NAN, INF = math.nan, math.inf
T_95 = {1: 12.706204736432095, 2: 4.302652729696142}
"""Student's 97.5% points by degrees of freedom, from a printed table."""


def test_over_seeds_returns_mean_with_t_interval() -> None:
    values = [0.30, 0.34, 0.41]
    estimate = over_seeds(values)
    half = T_95[2] * stdev(values) / math.sqrt(3)
    assert (estimate.value, estimate.half, estimate.n) == (mean(values), pytest.approx(half), 3)
    assert (estimate.low, estimate.high) == pytest.approx((mean(values) - half, mean(values) + half))
    assert math.isnan(over_seeds([0.3]).half)


def test_difference_of_equal_seeds_is_paired() -> None:
    delta = difference({"0": 0.5, "1": 0.6}, {"1": 0.4, "0": 0.2})
    assert (delta.method, delta.n, delta.value) == ("paired", 2, pytest.approx(0.25))
    assert delta.half == pytest.approx(T_95[1] * stdev([0.3, 0.2]) / math.sqrt(2))


def test_difference_of_different_seeds_uses_welch() -> None:
    """By hand: s²/n = 1 and 1/3, so ν = (4/3)² / (1/2 + 1/18) = 3.2, and t of that is 3.07283."""
    ours = {"0": 1.0 - math.sqrt(3), "1": 1.0, "2": 1.0 + math.sqrt(3)}
    delta = difference(ours, {"3": -1.0, "4": 0.0, "5": 1.0})
    assert (delta.method, delta.value) == ("welch", pytest.approx(1.0))
    assert delta.half == pytest.approx(3.07283 * math.sqrt(4 / 3), rel=1e-6)
    assert delta.points() == f"+100.0 ± {100 * delta.half:.1f} ʷ"
    assert difference({"0": 0.5, "1": 0.5}, {"2": 0.2, "3": 0.2}).half == 0.0, "of equal values no width"
    alone = difference({"0": 0.5, "1": 0.6}, {"7": 0.2})
    assert (alone.text(".3f"), alone.points()) == ("+0.350", "+35.0"), "to a single seed there is no interval"


def test_value_that_rounds_to_zero_has_no_minus_sign() -> None:
    assert over_seeds([-0.0001, -0.0003]).text(".1f", factor=100).startswith("0.0 ± ")
    assert difference({"0": 0.1}, {"0": 0.1001}).points() == "+0.0"


@pytest.mark.parametrize(
    ("values", "expected"), [([0.1, INF], INF), ([0.1, -INF, 0.2], -INF), ([0.1, NAN], NAN), ([INF, -INF], NAN)]
)
def test_non_finite_seed_gives_non_finite_mean_without_interval(values: list[float], expected: float) -> None:
    found = over_seeds(values)
    assert found.value == pytest.approx(expected, nan_ok=True)
    assert math.isnan(found.half)
    for seeds in ("01", "23"):
        delta = difference({"0": 0.1, "1": INF}, dict(zip(seeds, (0.2, 0.3), strict=True)))
        assert (delta.value, math.isnan(delta.half)) == (INF, True)


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ({"3": 0.3, "4": 0.4, "5": 0.5}, (0.2, "welch", 3)),
        ({"1": 0.4, "2": 0.4, "4": 0.9}, (0.25, "paired", 2)),
        ({"2": 0.4}, (0.2, "paired", 1)),
        ({"7": 0.4}, (0.2, "welch", 1)),
    ],
    ids=["one shared seed", "two shared of three", "single seed, shared", "single seed, not shared"],
)
def test_difference_over_shared_seeds_selects_compared_seeds(
    other: dict[str, float], expected: tuple[float, str, int]
) -> None:
    """A seed also selects the starting policy. With all seeds of the baseline, starting policies would be compared."""
    delta = difference_over_shared_seeds(other, {"1": 0.1, "2": 0.2, "3": 0.3})
    assert (delta.value, delta.method, delta.n) == (pytest.approx(expected[0]), *expected[1:])


@pytest.mark.parametrize(
    ("ours", "start_per_seed", "compared"),
    [("012", True, ("01", "01")), ("012", False, ("012", "01")), ("1", False, ("1", "1")), ("5", False, ("5", "01"))],
)
def test_seeds_to_compare_depend_on_start_per_seed(ours: str, start_per_seed: bool, compared: tuple[str, str]) -> None:
    found = seeds_to_compare(dict.fromkeys(ours, 0.0), dict.fromkeys("01", 0.0), start_per_seed=start_per_seed)
    assert tuple("".join(side) for side in found) == compared


def step_down(p_values: list[float], level: float) -> set[int]:
    """Holm's procedure as it was written: rejects the smallest p while it is at most level / (tests left)."""
    left, rejected = set(range(len(p_values))), set[int]()
    while left and p_values[least := min(left, key=p_values.__getitem__)] <= level / len(left):
        left.remove(least)
        rejected.add(least)
    return rejected


def test_holm_rejects_what_the_step_down_procedure_rejects() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    rng = random.Random(0)
    for tests in range(1, 8):
        p_values = [rng.random() ** 3 for _ in range(tests)]
        for level in (0.01, 0.05, 0.2, 0.9):
            assert {test for test, p in enumerate(holm(p_values)) if p <= level} == step_down(p_values, level)


def test_holm_counts_a_test_without_p() -> None:
    first, unknown, last = holm([0.01, NAN, 0.02])
    assert (first, last) == pytest.approx((0.03, 0.04))
    assert math.isnan(unknown)


def test_paired_p_and_equivalence_match_scipy() -> None:
    rng = random.Random(1)
    for pairs in (2, 5, 15):
        values = [rng.gauss(0.004, 0.02) for _ in range(pairs)]
        assert paired_p(values) == pytest.approx(stats.ttest_1samp(values, 0).pvalue, rel=1e-9)
        for margin in (0.005, 0.01, 0.02, 0.1):
            sides = ((-margin, "greater"), (margin, "less"))
            larger = max(stats.ttest_1samp(values, end, alternative=side).pvalue for end, side in sides)
            estimate, within = equivalence(values, margin=margin)
            assert within == (larger < 0.05)
            low, high = stats.ttest_1samp(values, 0).confidence_interval(0.90)
            assert (estimate.low, estimate.high) == pytest.approx((low, high))


def test_equal_single_and_diverged_differences() -> None:
    assert [paired_p([0.5, 0.5]), paired_p([0.0, 0.0])] == [0.0, 1.0]
    assert all(math.isnan(paired_p(values)) for values in ([0.3], [0.3, INF]))
    assert not equivalence([0.0], margin=1.0)[1]
    assert not equivalence([0.0, INF], margin=1.0)[1]
    assert equivalence([0.01, 0.01], margin=0.02)[1]

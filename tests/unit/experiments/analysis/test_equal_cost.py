"""Interpolation of curves over cost; the interval of a cost, against resampled mean curves computed one by one."""

from __future__ import annotations

import math

import numpy as np
import pytest

from experiments.analysis.equal_cost import CostCurve, at_cost, curve_of, mean_curve, time_to_target

RISING = CostCurve(costs=[10.0, 20.0, 40.0], values=[0.2, 0.4, 0.3])
NAN, INF = math.nan, math.inf


def curve(*values: float, first: float = 0.0, step: float = 10.0) -> CostCurve:
    return CostCurve(costs=[first + step * place for place in range(len(values))], values=list(values))


OURS = [curve(0.1, 0.3, 0.5, 0.7), curve(0.0, 0.1, 0.6), curve(0.2, 0.2, 0.2, 0.3, first=5.0, step=7.0)]
THEIRS = [curve(0.1, 0.2, 0.4), curve(0.1, 0.2, 0.25, 0.3), curve(0.1, 0.5, step=15.0)]


def test_curve_is_linear_between_points_and_constant_before_them() -> None:
    assert [RISING.at(cost) for cost in (0, 10, 15, 20, 30, 40)] == pytest.approx([0.2, 0.2, 0.3, 0.4, 0.35, 0.3])
    with pytest.raises(ValueError, match=r"40.*41"):
        RISING.at(41)
    for cost in (5.0, 25.0, 40.0):
        slices = [RISING.at(cost * (index + 0.5) / 20000) for index in range(20000)]
        assert RISING.mean_height(cost) == pytest.approx(sum(slices) / 20000, abs=1e-6), "as of many thin slices"


@pytest.mark.parametrize(
    ("values", "cost"),
    [
        ([0.3, 0.4, 0.5], 10.0),
        ([0.2, 0.4, 0.3], 15.0),
        ([0.1, 0.2, 0.2], INF),
        ([NAN, 0.4, 0.5], 20.0),
        ([0.2, NAN, 0.5], 40.0),
        ([-INF, 0.4, 0.5], 20.0),
        ([INF, 0.2, 0.4], 30.0),
        ([0.2, INF, 0.1], INF),
    ],
)
def test_cost_of_returns_first_cost_at_which_value_is_reached(values: list[float], cost: float) -> None:
    assert CostCurve(costs=[10.0, 20.0, 40.0], values=values).cost_of(0.3) == pytest.approx(cost)


def test_curve_of_has_the_steps_whose_cost_is_known() -> None:
    found = curve_of({0: 0.1, 2: 0.3, 4: 0.5}, {0: 100.0, 1: 107.0, 2: 109.0})
    assert found == CostCurve(costs=[100.0, 109.0], values=[0.1, 0.3])
    assert curve_of({0: 0.1}, {}) is None


def test_mean_curve_ends_with_its_shortest_run() -> None:
    mean = mean_curve([RISING, CostCurve(costs=[0.0, 30.0], values=[0.0, 0.6])])
    assert mean.costs == [0.0, 10.0, 20.0, 30.0]
    assert mean.values == pytest.approx([0.1, 0.2, 0.4, 0.475])


@pytest.mark.parametrize("same_seeds", [True, False])
def test_time_to_target_interval_equals_that_of_resampled_mean_curves(same_seeds: bool) -> None:
    generator, costs = np.random.default_rng(3), []
    for _ in range(200):
        drawn = generator.integers(3, size=3)
        others = drawn if same_seeds else generator.integers(3, size=3)
        end = mean_curve([THEIRS[place] for place in others]).values[-1]
        costs.append(mean_curve([OURS[place] for place in drawn]).cost_of(end))
    found = time_to_target(OURS, THEIRS, same_seeds=same_seeds, resamples=200, seed=3)
    assert (found.low, found.high) == pytest.approx((sorted(costs)[4], sorted(costs)[194]))
    assert 0 < found.never == sum(map(math.isinf, costs)) / 200 < 1


@pytest.mark.parametrize("lost", [NAN, INF, -INF])
def test_time_to_target_counts_diverged_seed_when_resampled(lost: float) -> None:
    ours, theirs = [curve(0.0, 0.5), curve(0.0, lost)], [curve(0.0, 0.25)] * 2
    found = time_to_target(ours, theirs, same_seeds=False, resamples=99, seed=0)
    assert found.never > 0.5
    assert (found.low, found.high) == (5.0, INF)


def test_at_cost_compares_at_the_smaller_final_cost() -> None:
    ours = {"0": curve(0.2, 0.4, 0.6), "1": curve(0.2, 0.4, 0.6, 0.9)}
    theirs = {"0": curve(0.2, 0.2, step=25.0), "1": curve(0.2, 0.3, step=30.0)}
    found = at_cost(ours, theirs, own=False)
    assert (found.cost, found.values) == (20.0, pytest.approx([0.3, 0.4, 0.6]))
    assert found.gain.value == pytest.approx(0.6 - (0.2 + 0.2 + 0.1 * 20 / 30) / 2)
    assert at_cost(ours, {}, own=False) is None

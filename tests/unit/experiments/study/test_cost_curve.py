from __future__ import annotations

import math

import pytest

from experiments.study.cost_curve import CostCurve, curve_of, mean_curve

RISING = CostCurve(costs=[10.0, 20.0, 40.0], values=[0.2, 0.4, 0.3])


def test_between_points_lies_a_straight_line_and_before_them_the_first_value() -> None:
    assert [RISING.at(cost) for cost in (0, 10, 15, 20, 30, 40)] == pytest.approx([0.2, 0.2, 0.3, 0.4, 0.35, 0.3])


def test_beyond_its_end_a_curve_is_not_asked() -> None:
    with pytest.raises(ValueError, match="the curve ends at 40, asked at 41"):
        RISING.at(41)


@pytest.mark.parametrize("cost", [5.0, 10.0, 25.0, 40.0])
def test_the_mean_height_is_that_of_many_thin_slices(cost: float) -> None:
    slices = 20000
    heights = [RISING.at(cost * (index + 0.5) / slices) for index in range(slices)]
    assert RISING.mean_height(cost) == pytest.approx(sum(heights) / slices, abs=1e-6)


def test_a_value_is_reached_where_the_curve_first_crosses_it() -> None:
    assert RISING.cost_of(0.1) == 10.0
    assert RISING.cost_of(0.35) == pytest.approx(17.5)
    assert RISING.cost_of(0.4) == 20.0
    assert RISING.cost_of(0.41) is None


@pytest.mark.parametrize(
    ("values", "cost"),
    [
        ([math.nan, 0.4, 0.5], 20.0),
        ([0.2, math.nan, 0.5], 40.0),
        ([-math.inf, 0.4, 0.5], 20.0),
        ([math.inf, 0.2, 0.4], 30.0),
        ([0.2, math.inf, 0.1], None),
        ([math.nan, 0.1, math.nan], None),
    ],
)
def test_what_is_not_finite_reaches_nothing(values: list[float], cost: float | None) -> None:
    assert CostCurve(costs=[10.0, 20.0, 40.0], values=values).cost_of(0.3) == pytest.approx(cost)


def test_what_was_spent_before_moves_the_curve() -> None:
    curve = curve_of({0: 0.1, 2: 0.3, 4: 0.5}, {1: 7.0, 2: 9.0, 3: 20.0}, before=100.0)
    assert curve == CostCurve(costs=[100.0, 109.0], values=[0.1, 0.3]), "of step 4 nothing is known"
    assert curve_of({0: 0.1}, {}, before=0.0) is None


def test_a_mean_goes_as_far_as_its_shortest_run() -> None:
    other = CostCurve(costs=[0.0, 30.0], values=[0.0, 0.6])
    mean = mean_curve([RISING, other])
    assert mean.costs == [0.0, 10.0, 20.0, 30.0]
    assert mean.values == pytest.approx([0.1, 0.2, 0.4, 0.475])


def test_costs_that_fall_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot become less"):
        CostCurve(costs=[2.0, 1.0], values=[0.0, 0.0])

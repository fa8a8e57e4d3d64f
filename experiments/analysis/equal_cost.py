"""Comparison of an arm and its baseline at equal cost, in tokens or seconds, from the curves of validation over cost.

A curve is interpolated linearly between its points. Before its first point it has the first value, for example while
the critic is being trained. After its last point it is undefined.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import mean

import numpy as np

from experiments.analysis.statistics import Difference, difference

RESAMPLES, SEED = 2000, 0
"""Settings of every bootstrap in a study's report."""
SHARES = (0.25, 0.5, 1.0)
"""Shares of the cost that both the arm and the baseline reached."""


@dataclass(frozen=True, kw_only=True)
class CostCurve:
    """A quantity over cost, of one run or the mean of several.

    Raises:
        ValueError: for no points, unequal numbers of costs and values, or decreasing costs.
    """

    costs: Sequence[float]
    values: Sequence[float]

    def __post_init__(self) -> None:
        if not self.costs or len(self.costs) != len(self.values):
            raise ValueError(f"a curve needs a value for each cost, got {len(self.values)} for {len(self.costs)}")
        if any(after < before for before, after in pairwise(self.costs)):
            raise ValueError(f"costs must not decrease, got {list(self.costs)}")

    def at(self, cost: float) -> float:
        """The value at ``cost``; raises ValueError for a cost that the run did not reach."""
        if cost > self.costs[-1]:
            raise ValueError(f"the curve ends at {self.costs[-1]:g}, requested at {cost:g}")
        # not np.interp, which rounds differently and takes the last of several values at one cost
        after = bisect_left(self.costs, cost)
        if after == 0 or self.costs[after] == cost:
            return self.values[after]
        (left, right), (low, high) = self.costs[after - 1 : after + 1], self.values[after - 1 : after + 1]
        return low + (high - low) * (cost - left) / (right - left)

    def mean_height(self, cost: float) -> float:
        """The area under the curve from cost 0 to ``cost``, divided by ``cost``."""
        points = [0.0, *(between for between in self.costs if 0 < between < cost), cost]
        area = sum((right - left) * (self.at(left) + self.at(right)) / 2 for left, right in pairwise(points))
        return area / cost if cost > 0 else self.at(cost)

    def cost_of(self, value: float) -> float:
        """The least cost at which ``value`` is reached; infinite if it never is.

        A non-finite point does not reach it. Between a non-finite point and one that reaches it the cost is the
        latter's, without interpolation.
        """
        if value <= self.values[0] and math.isfinite(self.values[0]):
            return self.costs[0]
        for (left, low), (right, high) in pairwise(zip(self.costs, self.values, strict=True)):
            if value <= high and math.isfinite(high):
                return left + (right - left) * (value - low) / (high - low) if math.isfinite(low) else right
        return math.inf


def curve_of(values: Mapping[int, float], costs: Mapping[int, float]) -> CostCurve | None:
    """The curve of ``values`` over ``costs``, both by step; None if no step has both."""
    steps = [step for step in sorted(values) if step in costs]
    return CostCurve(costs=[costs[step] for step in steps], values=[values[step] for step in steps]) if steps else None


class MeanCurves:
    """Computes means of chosen curves. Each curve is evaluated only once, at the costs of all curves."""

    def __init__(self, curves: Sequence[CostCurve]) -> None:
        self.costs = np.array(sorted({cost for curve in curves for cost in curve.costs}))
        self.values = np.array([[curve.at(min(cost, curve.costs[-1])) for cost in self.costs] for curve in curves])
        self.firsts, self.lasts = np.array([(curve.costs[0], curve.costs[-1]) for curve in curves]).T

    def of(self, chosen: np.ndarray) -> CostCurve:
        """The mean of the curves at these indices, which may repeat, up to the least of their last costs."""
        within = (self.costs >= self.firsts[chosen].min()) & (self.costs <= self.lasts[chosen].min())
        with np.errstate(invalid="ignore"):  # a diverged run counts too
            means = self.values[chosen][:, within].mean(0)
        return CostCurve(costs=self.costs[within].tolist(), values=means.tolist())


def mean_curve(curves: Sequence[CostCurve]) -> CostCurve:
    """The mean over runs, up to the least of their last costs."""
    return MeanCurves(curves).of(np.arange(len(curves)))


@dataclass(frozen=True, kw_only=True)
class TimeToTarget:
    """The middle 95% of the costs at which resampled seeds reach the baseline's end; infinite if they never do."""

    low: float
    high: float
    never: float
    """The share of the draws that never reach it."""


def time_to_target(
    ours: Sequence[CostCurve],
    baseline: Sequence[CostCurve],
    *,
    same_seeds: bool,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> TimeToTarget:
    """The bootstrap interval of the cost at which ``mean_curve(ours)`` reaches the end of ``mean_curve(baseline)``.

        c* = the least cost at which the mean curve of the arm's drawn seeds reaches the last value of the mean curve
             of the baseline's drawn seeds; ∞ if it never does

    With few seeds the interval is too narrow, as for every bootstrap (see :func:`nested_difference`). There is one
    curve per seed. With ``same_seeds``, curve i of both sides has the same seed, and both are drawn together.
    """
    generator, means, targets = np.random.default_rng(seed), MeanCurves(ours), MeanCurves(baseline)
    costs = np.full(resamples, np.inf)
    for draw in range(resamples):
        drawn = generator.integers(len(ours), size=len(ours))
        others = drawn if same_seeds else generator.integers(len(baseline), size=len(baseline))
        costs[draw] = means.of(drawn).cost_of(targets.of(others).values[-1])
    low, high = np.quantile(costs, [0.025, 0.975], method="inverted_cdf").tolist()  # no mean of a cost and ∞
    return TimeToTarget(low=low, high=high, never=float(np.isinf(costs).mean()))


@dataclass(frozen=True, kw_only=True)
class AtCost:
    """The validation curve at equal cost, as the mean over seeds. The baseline itself has no gains and no interval."""

    cost: float
    """The cost that the arm and the baseline reached in every seed; it does not depend on other arms."""
    values: Sequence[float]
    """The curve at each of ``SHARES`` of ``cost``."""
    gain: Difference | None
    """The last of ``values`` minus the baseline's."""
    mean_height: float
    """Area under the curve up to ``cost``, divided by ``cost``."""
    height_gain: Difference | None
    """``mean_height`` minus the baseline's."""
    to_baseline: float
    """The cost to reach the last value of the baseline's mean curve; infinite if it is not reached."""
    time_to_target: TimeToTarget | None
    """The interval of ``to_baseline`` over seeds; None also if either side has one run."""


def at_cost(ours: Mapping[str, CostCurve], baseline: Mapping[str, CostCurve], *, own: bool) -> AtCost | None:
    """Compares curves by seed; None if a side has no curves. ``own``: both sides are the baseline's."""
    if not ours or not baseline:
        return None
    curves, others = list(ours.values()), list(baseline.values())
    cost, target = shared_cost([*curves, *others]), mean_curve(others).values[-1]
    several, same = min(len(curves), len(others)) > 1, list(ours) == list(baseline)

    def gain(value: Callable[[CostCurve], float]) -> Difference | None:
        sides = [{seed: value(curve) for seed, curve in side.items()} for side in (ours, baseline)]
        return None if own else difference(*sides)

    return AtCost(
        cost=cost,
        values=[mean(curve.at(share * cost) for curve in curves) for share in SHARES],
        gain=gain(lambda curve: curve.at(cost)),
        mean_height=mean(curve.mean_height(cost) for curve in curves),
        height_gain=gain(lambda curve: curve.mean_height(cost)),
        to_baseline=mean_curve(curves).cost_of(target),
        time_to_target=time_to_target(curves, others, same_seeds=same) if several and not own else None,
    )


def shared_cost(curves: Sequence[CostCurve]) -> float:
    """The largest cost that all curves reach."""
    return min(curve.costs[-1] for curve in curves)

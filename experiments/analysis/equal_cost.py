"""An arm and its baseline where both have spent as much, in tokens or seconds: read from validation over cost.

A curve is read anywhere between its points by straight lines; before its first point it has the first value (what the
policy could while, say, its critic was being trained); after its last one nothing is known.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import mean

import numpy as np

from experiments.analysis.statistics import Difference, difference

RESAMPLES, SEED = 2000, 0
"""Of every bootstrap of a study's report."""
SHARES = (0.25, 0.5, 1.0)
"""Of the cost that both the arm and the baseline spent."""


@dataclass(frozen=True, kw_only=True)
class CostCurve:
    """A quantity over cost, of one run or the mean of several; raises ValueError for no points, or costs that fall."""

    costs: Sequence[float]
    values: Sequence[float]

    def __post_init__(self) -> None:
        if not self.costs or len(self.costs) != len(self.values):
            raise ValueError(f"a curve needs a value for each cost, got {len(self.values)} for {len(self.costs)}")
        if any(after < before for before, after in pairwise(self.costs)):
            raise ValueError("what has been spent cannot become less")

    def at(self, cost: float) -> float:
        """The value at ``cost``; raises ValueError for a cost that the run did not reach."""
        if cost > self.costs[-1]:
            raise ValueError(f"the curve ends at {self.costs[-1]:g}, asked at {cost:g}")
        after = bisect_left(self.costs, cost)
        if after == 0 or self.costs[after] == cost:
            return self.values[after]
        (left, right), (low, high) = self.costs[after - 1 : after + 1], self.values[after - 1 : after + 1]
        return low + (high - low) * (cost - left) / (right - left)

    def mean_height(self, cost: float) -> float:
        """The area under the curve from nothing spent to ``cost``, divided by ``cost``."""
        points = [0.0, *(between for between in self.costs if 0 < between < cost), cost]
        area = sum((right - left) * (self.at(left) + self.at(right)) / 2 for left, right in pairwise(points))
        return area / cost if cost > 0 else self.at(cost)

    def cost_of(self, value: float) -> float:
        """The least cost at which ``value`` is reached; infinite where it never is.

        A point that is not finite does not reach it, and after one it is reached at the next measured point.
        """
        if value <= self.values[0] and math.isfinite(self.values[0]):
            return self.costs[0]
        for (left, low), (right, high) in pairwise(zip(self.costs, self.values, strict=True)):
            if value <= high and math.isfinite(high):
                return left + (right - left) * (value - low) / (high - low) if math.isfinite(low) else right
        return math.inf


def curve_of(values: Mapping[int, float], spent: Mapping[int, float], *, before: float) -> CostCurve | None:
    """Values over what had been spent by then, both by step, and ``before`` step 0; None where no cost is known."""
    costs = {0: 0.0, **spent}
    steps = [step for step in sorted(values) if step in costs]
    if not spent or not steps:
        return None
    return CostCurve(costs=[before + costs[step] for step in steps], values=[values[step] for step in steps])


class MeanCurves:
    """Means of chosen curves, which are each read once, at the costs of all."""

    def __init__(self, curves: Sequence[CostCurve]) -> None:
        self.costs = np.array(sorted({cost for curve in curves for cost in curve.costs}))
        self.values = np.array([[curve.at(min(cost, curve.costs[-1])) for cost in self.costs] for curve in curves])
        self.firsts, self.lasts = np.array([(curve.costs[0], curve.costs[-1]) for curve in curves]).T

    def of(self, chosen: np.ndarray) -> CostCurve:
        """The mean of the curves at these places, which may be repeated, up to where all of them go."""
        within = (self.costs >= self.firsts[chosen].min()) & (self.costs <= self.lasts[chosen].min())
        with np.errstate(invalid="ignore"):  # a run that diverged counts too
            means = self.values[chosen][:, within].mean(0)
        return CostCurve(costs=self.costs[within].tolist(), values=means.tolist())


def mean_curve(curves: Sequence[CostCurve]) -> CostCurve:
    """The mean over runs, up to where all of them go."""
    return MeanCurves(curves).of(np.arange(len(curves)))


@dataclass(frozen=True, kw_only=True)
class TimeToTarget:
    """The middle 95% of what draws of seeds cost to reach the baseline's end; infinite where they never do."""

    low: float
    high: float
    never: float
    """The share of the draws that never reach it."""


def time_to_target(
    ours: Sequence[CostCurve], baseline: Sequence[CostCurve], *, same_seeds: bool, resamples: int, seed: int
) -> TimeToTarget:
    """The interval of what ``mean_curve(ours)`` spends to reach the end of ``mean_curve(baseline)``.

        c* = the least cost at which the mean curve of the arm's drawn seeds has the value with which that of the
             baseline's drawn seeds ends; ∞ where it never has

    Of few seeds it is too narrow, as every bootstrap of them (see :func:`nested_difference`). There is a curve for each
    seed; with ``same_seeds`` curve i of both sides has the same seed, and they are drawn together.
    """
    generator, means, targets = np.random.default_rng(seed), MeanCurves(ours), MeanCurves(baseline)
    costs = np.full(resamples, np.inf)
    for draw in range(resamples):
        drawn = generator.integers(len(ours), size=len(ours))
        others = drawn if same_seeds else generator.integers(len(baseline), size=len(baseline))
        costs[draw] = means.of(drawn).cost_of(targets.of(others).values[-1])
    low, high = np.quantile(costs, [0.025, 0.975], method="inverted_cdf").tolist()  # nothing between a cost and ∞
    return TimeToTarget(low=low, high=high, never=float(np.isinf(costs).mean()))


@dataclass(frozen=True, kw_only=True)
class AtCost:
    """The validation curve at equal cost, the mean over seeds; what compares is None on the baseline's own row."""

    cost: float
    """What the arm and the baseline both spent, in every seed: no other arm changes it."""
    values: Sequence[float]
    """At each of ``SHARES`` of ``cost``."""
    gain: Difference | None
    """Of the last of ``values`` over the baseline's."""
    mean_height: float
    """Area under the curve up to ``cost``, by ``cost``."""
    height_gain: Difference | None
    """Of ``mean_height`` over the baseline's."""
    to_baseline: float
    """The cost to reach the value with which the baseline's mean curve ends; infinite: it did not."""
    time_to_target: TimeToTarget | None
    """The interval of that over seeds; None also where either side has one run."""


def at_cost(ours: Mapping[str, CostCurve], baseline: Mapping[str, CostCurve], *, own: bool) -> AtCost | None:
    """Both by seed; None where one of the two counted no cost. ``own``: both are the baseline's."""
    if not ours or not baseline:
        return None
    cost = shared_cost([*ours.values(), *baseline.values()])
    ends, their_ends = ({seed: curve.at(cost) for seed, curve in side.items()} for side in (ours, baseline))
    heights, their_heights = (
        {seed: curve.mean_height(cost) for seed, curve in side.items()} for side in (ours, baseline)
    )
    curves, their_curves = list(ours.values()), list(baseline.values())
    interval = None
    if not own and min(len(curves), len(their_curves)) > 1:
        same = list(ours) == list(baseline)
        interval = time_to_target(curves, their_curves, same_seeds=same, resamples=RESAMPLES, seed=SEED)
    return AtCost(
        cost=cost,
        values=[mean(curve.at(share * cost) for curve in curves) for share in SHARES],
        gain=None if own else difference(ends, their_ends),
        mean_height=mean(heights.values()),
        height_gain=None if own else difference(heights, their_heights),
        to_baseline=mean_curve(curves).cost_of(mean_curve(their_curves).values[-1]),
        time_to_target=interval,
    )


def shared_cost(curves: Sequence[CostCurve]) -> float:
    """How far all of the curves go."""
    return min(curve.costs[-1] for curve in curves)

"""A quantity over what it has cost so far, in tokens or seconds: read anywhere between its points, by straight lines.

before the first point    the first value: what the policy could while, say, its critic was still being trained
after the last one        nothing is known
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, kw_only=True)
class CostCurve:
    """One run, or the mean of several.

    Raises:
        ValueError: for no points, or costs that fall.
    """

    costs: Sequence[float]
    values: Sequence[float]

    def __post_init__(self) -> None:
        if not self.costs or len(self.costs) != len(self.values):
            raise ValueError(f"a curve needs a value for each cost, got {len(self.values)} for {len(self.costs)}")
        if any(after < before for before, after in pairwise(self.costs)):
            raise ValueError("what has been spent cannot become less")

    @property
    def last_cost(self) -> float:
        return self.costs[-1]

    def at(self, cost: float) -> float:
        """The value at ``cost``.

        Raises:
            ValueError: for a cost that the run did not reach.
        """
        if cost > self.last_cost:
            raise ValueError(f"the curve ends at {self.last_cost:g}, asked at {cost:g}")
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

    def cost_of(self, value: float) -> float | None:
        """The least cost at which ``value`` is reached; None where it never is.

        No point that is not finite reaches it, and what follows one is reached where it was measured.
        """
        if value <= self.values[0] and math.isfinite(self.values[0]):
            return self.costs[0]
        for (left, low), (right, high) in pairwise(zip(self.costs, self.values, strict=True)):
            if value <= high and math.isfinite(high):
                return left + (right - left) * (value - low) / (high - low) if math.isfinite(low) else right
        return None


def curve_of(values: Mapping[int, float], spent: Mapping[int, float], *, before: float) -> CostCurve | None:
    """Values by step over what had been spent by then, beside what was spent ``before`` step 0.

    Steps of which nothing is known to have been spent are left out; None where no step remains.
    """
    costs = {0: 0.0, **spent}
    steps = [step for step in sorted(values) if step in costs]
    if not spent or not steps:
        return None
    return CostCurve(costs=[before + costs[step] for step in steps], values=[values[step] for step in steps])


def mean_curve(curves: Sequence[CostCurve]) -> CostCurve:
    """The mean over runs, up to where all of them go."""
    end = min(curve.last_cost for curve in curves)
    costs = sorted({cost for curve in curves for cost in curve.costs if cost <= end})
    return CostCurve(costs=costs, values=[sum(curve.at(cost) for curve in curves) / len(curves) for cost in costs])

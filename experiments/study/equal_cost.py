"""An arm and its baseline where both have spent as much: what is known of the validation curve there, over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

from experiments.analysis.seeds import Difference, difference
from experiments.study.cost_curve import CostCurve, mean_curve
from experiments.study.reaching import Reaching, reaching
from experiments.study.results import ArmResult

RESAMPLES, SEED = 2000, 0
SHARES = (0.25, 0.5, 1.0)
"""Of the compute that both the arm and the baseline spent."""


@dataclass(frozen=True, kw_only=True)
class AtCost:
    """The validation curve over what was spent, the mean over seeds."""

    cost: float
    """What the arm and the baseline both spent, in every seed: no other arm has a say in it."""
    values: Sequence[float]
    """At each of ``SHARES`` of ``cost``."""
    gain: Difference | None
    """Over seeds, of the last of ``values`` over the baseline's; None on the baseline's own row."""
    mean_height: float
    """Area under the curve up to ``cost``, by ``cost``."""
    height_gain: Difference | None
    """Over seeds, of ``mean_height`` over the baseline's up to the same cost; None on the baseline's own row."""
    to_baseline: float | None
    """What it cost to reach the value with which the baseline's mean curve ends; None: it did not."""
    reaching: Reaching | None
    """The interval of that over seeds; None on the baseline's own row, and where either side has one run."""


def reach(curves: Sequence[CostCurve]) -> float:
    """How far all of the curves go."""
    return min(curve.last_cost for curve in curves)


def at_cost(arm: ArmResult, baseline: ArmResult, kind: str) -> AtCost | None:
    """None where one of the arm's runs, or of the baseline's, did not count this cost."""
    ours, theirs = arm.curves(kind), baseline.curves(kind)
    if not ours or not theirs:
        return None
    cost, own = reach([*ours, *theirs]), arm is baseline
    ends, their_ends = ([curve.at(cost) for curve in curves] for curves in (ours, theirs))
    heights, their_heights = ([curve.mean_height(cost) for curve in curves] for curves in (ours, theirs))
    return AtCost(
        cost=cost,
        values=[mean(curve.at(share * cost) for curve in ours) for share in SHARES],
        gain=None if own else difference(arm.by_seed(ends), baseline.by_seed(their_ends)),
        mean_height=mean(heights),
        height_gain=None if own else difference(arm.by_seed(heights), baseline.by_seed(their_heights)),
        to_baseline=mean_curve(ours).cost_of(mean_curve(theirs).values[-1]),
        reaching=None if own or 1 in (len(ours), len(theirs)) else _reaching(arm, baseline, kind),
    )


def _reaching(arm: ArmResult, baseline: ArmResult, kind: str) -> Reaching:
    same = list(arm.seeds) == list(baseline.seeds)
    return reaching(arm.curves(kind), baseline.curves(kind), same_seeds=same, resamples=RESAMPLES, seed=SEED)

"""What it costs an arm to come to where its baseline ends, with the middle 95% of what seeds drawn again say.

    c* = the least cost at which the mean curve of the arm's drawn seeds is at the value with which that of the
         baseline's drawn seeds ends; ∞ where it never is

Seeds that both have are drawn together. The interval of few seeds is too narrow, as that of every bootstrap of them
(``contrastive_reasoning/evaluation/nested_bootstrap.py``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.study.cost_curve import CostCurve


@dataclass(frozen=True, kw_only=True)
class Reaching:
    """An interval of a cost; an end is infinite where so many draws never come there."""

    low: float
    high: float
    never: float
    """The share of the draws that never come there."""


def reaching(
    ours: Sequence[CostCurve], baseline: Sequence[CostCurve], *, same_seeds: bool, resamples: int, seed: int
) -> Reaching:
    """The interval of what ``mean_curve(ours)`` spends to be at the end of ``mean_curve(baseline)``.

    Args:
        ours: a curve for each seed of the arm.
        baseline: the same of the baseline.
        same_seeds: curve i of both has the same seed: they are drawn together.
        resamples: draws.
        seed: of the draws.

    Raises:
        ValueError: for an empty side, or other seeds than ``same_seeds`` says.
    """
    if not ours or not baseline:
        raise ValueError(f"each side needs a seed, got {len(ours)} and {len(baseline)}")
    if same_seeds and len(ours) != len(baseline):
        raise ValueError(f"the same seeds were said of {len(ours)} and {len(baseline)} runs")
    costs = np.array(list(_draws(Means(ours), Means(baseline), same_seeds, resamples, np.random.default_rng(seed))))
    low, high = np.quantile(costs, [0.025, 0.975], method="inverted_cdf").tolist()  # nothing between a cost and ∞
    return Reaching(low=low, high=high, never=float(np.isinf(costs).mean()))


def _draws(
    ours: Means, baseline: Means, same_seeds: bool, resamples: int, generator: np.random.Generator
) -> Iterator[float]:
    for _ in range(resamples):
        drawn = generator.integers(len(ours.curves), size=len(ours.curves))
        others = drawn if same_seeds else generator.integers(len(baseline.curves), size=len(baseline.curves))
        cost = ours.of(drawn).cost_of(baseline.of(others).values[-1])
        yield math.inf if cost is None else cost


class Means:
    """Means of drawn curves, as ``mean_curve`` has them, by reading each curve once at the costs of all."""

    def __init__(self, curves: Sequence[CostCurve]) -> None:
        self.curves = curves
        self.costs = np.array(sorted({cost for curve in curves for cost in curve.costs}))
        self.values = np.array([[curve.at(min(cost, curve.last_cost)) for cost in self.costs] for curve in curves])
        self.firsts, self.lasts = np.array([(curve.costs[0], curve.last_cost) for curve in curves]).T

    def of(self, drawn: np.ndarray) -> CostCurve:
        """The mean of these curves, which may be drawn more than once, up to where all of them go."""
        within = (self.costs >= self.firsts[drawn].min()) & (self.costs <= self.lasts[drawn].min())
        with np.errstate(invalid="ignore"):  # what diverged counts like the rest
            means = self.values[drawn][:, within].mean(0)
        return CostCurve(costs=self.costs[within].tolist(), values=means.tolist())

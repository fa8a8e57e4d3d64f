"""Goals by hindsight: what came after a moment of a trace is a goal that was reached from there.

A later moment j > i of a trace of n moments is drawn with probability p(j | i) ∝ γ^(j−i), cut off at the trace's end.
For n = 5, in units of 1/Σ of the row (the last moment has no future and is never drawn from):

          j=0  j=1  j=2  j=3  j=4            γ = 1: any later one      γ → 0: the next one
    i=0    ·    γ    γ²   γ³   γ⁴            ·  ¼  ¼  ¼  ¼             ·  1  ·  ·  ·
    i=1    ·    ·    γ    γ²   γ³            ·  ·  ⅓  ⅓  ⅓             ·  ·  1  ·  ·
    i=2    ·    ·    ·    γ    γ²            ·  ·  ·  ½  ½             ·  ·  ·  1  ·
    i=3    ·    ·    ·    ·    γ             ·  ·  ·  ·  1             ·  ·  ·  ·  1
    i=4    ·    ·    ·    ·    ·             ·  ·  ·  ·  ·             ·  ·  ·  ·  ·

The published critics draw any later moment (γ = 1); contrastive RL discounts (arXiv:2206.07568).
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Generic, TypeVar

StateT = TypeVar("StateT")
ActionT = TypeVar("ActionT")
GoalT = TypeVar("GoalT")


@dataclass(frozen=True, kw_only=True, slots=True)
class Triple(Generic[StateT, ActionT, GoalT]):
    """A goal that was reached after an action in a state."""

    state: StateT
    action: ActionT
    goal: GoalT


def draw_future(moment: int, moments: int, *, discount: float, rng: random.Random) -> int:
    """A later moment, by inversion of the truncated geometric distribution: one draw, whatever the length.

    Args:
        moment: i, with i < moments − 1.
        moments: n.
        discount: γ in (0, 1].
        rng: the only source of chance.

    Raises:
        ValueError: if the moment has no future, or the discount is not in (0, 1].
    """
    _check(discount)
    later = moments - moment - 1
    if later < 1:
        raise ValueError(f"moment {moment} of {moments} has no future to draw a goal from")
    if discount == 1:
        return moment + 1 + rng.randrange(later)
    tail = -math.expm1(later * math.log(discount))  # 1 − γ^later, exact for γ near 1
    steps = math.floor(math.log1p(-rng.random() * tail) / math.log(discount))
    return moment + 1 + min(steps, later - 1)


def _check(discount: float) -> None:
    if not 0 < discount <= 1:
        raise ValueError(f"discount must lie in (0, 1], got {discount}")

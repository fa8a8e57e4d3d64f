"""Triples (state, action, goal) from Countdown's search traces, in the three published forms.

text  state = the trace before a line, action = that line, goal = a later line
V1    state = the problem's numbers, action = a visited state, goal = a state visited later
V2    state = a visited state of three or two numbers, no action, goal = the problem's target, the same for all

Goals come from hindsight: what follows a moment of a trace is a goal that was reached from there. A later moment j > i
of n is drawn with probability p(j | i) ∝ γ^(j−i), truncated at the end of the trace. For n = 5, before each row is
normalized by its sum (the last moment has no future, so it never serves as i):

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
import re
from collections.abc import Collection
from typing import NamedTuple

from contrastive_reasoning.ranges import within
from contrastive_reasoning.tasks.countdown.search import SearchTree
from contrastive_reasoning.tasks.countdown.states import encode_state
from contrastive_reasoning.tasks.countdown.trace import wording_of

_NUMBER_LIST = re.compile(r"\[(\d+(?:, \d+)*)\]")


class TextTriple(NamedTuple):
    """A prefix of a search (state), the line after it (action), and a later line (goal)."""

    state: str
    action: str
    goal: str


def draw_future(moment: int, moments: int, *, discount: float, rng: random.Random) -> int:
    """Draws a later moment by inverting the truncated geometric distribution: one random number for every length.

    Args:
        moment: i, with i < moments − 1.
        moments: n.
        discount: γ in (0, 1].

    Raises:
        ValueError: if the moment has no future, or the discount is not in (0, 1].
    """
    within("(0, 1]", discount=discount)
    later = moments - moment - 1
    if later < 1:
        raise ValueError(f"moment {moment} of {moments} has no future to draw a goal from")
    if discount == 1:
        return moment + 1 + rng.randrange(later)
    tail = -math.expm1(later * math.log(discount))  # 1 − γ^later, exact for γ near 1
    steps = math.floor(math.log1p(-rng.random() * tail) / math.log(discount))
    return moment + 1 + min(steps, later - 1)  # rounding could give the moment after the last one


def text_triple(trace: str, *, style: str, discount: float, rng: random.Random) -> TextTriple:
    """Draws a line of the search as the action and a later one as the goal, excluding the header and the trace back.

    ``state + action`` is the trace up to the end of the action, so a critic can read the two as one text.

    Raises:
        ValueError: if the style is not ``longproc``, ``annotated`` or ``released``, or the search has fewer than two
            lines.
    """
    header, *lines = trace.split(wording_of(style).end, 1)[0].splitlines(keepends=True)
    moment = _draw_moment(len(lines), rng)
    later = draw_future(moment, len(lines), discount=discount, rng=rng)
    return TextTriple(header + "".join(lines[:moment]), lines[moment].rstrip("\n"), lines[later].strip())


def number_lists(line: str) -> list[tuple[int, ...]]:
    """The sorted numbers of every bracketed list in a line of a trace: states, and the numbers that a pick leaves."""
    return [tuple(sorted(int(number) for number in found.split(", "))) for found in _NUMBER_LIST.findall(line)]


def array_row(tree: SearchTree, rng: random.Random) -> list[int] | None:
    """Draws a V1 triple as 18 integers: the start, a state visited after it, and any state visited later (γ = 1).

    The search also writes failed branches, so a later state need not be reachable from an earlier one. From the start,
    every array of the trace is reachable, so V1 can ignore its action.

    Returns:
        None if fewer than two states were visited after the start.
    """
    if len(tree.states) < 3:
        return None
    moment = _draw_moment(len(tree.states) - 1, rng)
    later = draw_future(moment, len(tree.states) - 1, discount=1.0, rng=rng)
    states = tree.states[0], tree.states[moment + 1], tree.states[later + 1]
    return [number for state in states for number in encode_state(state)]


def target_row(tree: SearchTree, rng: random.Random, *, numbers_left: Collection[int]) -> list[int] | None:
    """Draws a V2 triple as 7 integers: a visited state, neither the first nor the last, and the target.

    The state is drawn uniformly among the visited ones whose size is in ``numbers_left``. It may be in a failed branch.

    Returns:
        None if no such state was visited.
    """
    states = [state for state in tree.states[1:-1] if len(state) in numbers_left]
    return [*encode_state(rng.choice(states)), tree.target] if states else None


def _draw_moment(moments: int, rng: random.Random) -> int:
    """Draws a moment that has a future, uniformly."""
    if moments < 2:
        raise ValueError(f"a trace needs at least two moments to draw a triple, got {moments}")
    return rng.randrange(moments - 1)

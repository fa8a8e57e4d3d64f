"""Exact labels by exhaustive search: states of random play, and the goals that a search under each finds or rules out.

The search is exhaustive and small (three numbers have at most 48 lines of play). A state therefore yields as many exact
pairs as the batch has goals: reached ones and certified dead ends. A critic trained on them is a distilled oracle,
whatever its loss, and needs a game in which search is this cheap. From a state with more numbers than
``exhaust_up_to``, random moves lead to one branch that is searched, so only the values reached in it are known.

    start (a, b, c, d) ──random──► anchor (a·b, c, d) ──every line of play──► {reached}      the rest: dead ends
    start (a, b, c, d) = anchor ──random──► (a·b, c, d) ──every line──► {reached}             the rest: unknown

A finished play, with one number left, is a state like the others; a reward evaluates it after the last move. Random
play rarely ends on one of the targets, so every second finished play is set to one.

Goals come from the trajectories by hindsight (a value reached from each anchor) and from their problems. A problem has
one target, reached or not, which gives dead ends with the problem's own target. Goals of other trajectories are the
in-batch negatives. A pairing determines the goals for the anchors, and which pairs are positive, negative or unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Int
from numpy import ndarray

from contrastive_reasoning.critics.base import NONE, Pairing, Pairs
from contrastive_reasoning.tasks.base import Task
from datamodules.countdown_game import CountdownGame
from datamodules.game_states import GameStates
from datamodules.random_play import reached_values


class EveryGoal:
    """Pairs every anchor with each distinct goal of the batch: many positives, many certified dead ends.

    For losses that take any number of positives (binary NCE). A goal that an unexhausted anchor is not known to reach
    counts as an in-batch negative. The exception is its own problem's target, which is then no candidate.
    """

    def __call__(
        self,
        hindsight: Int[ndarray, " A"],
        targets: Int[ndarray, " A"],
        reached: Bool[ndarray, "A V"],
        exhausted: Bool[ndarray, " A"],
    ) -> Pairs:
        goals = np.unique(np.concatenate([hindsight[hindsight != NONE], targets]))
        positive = reached[:, goals]
        own = goals[None] == targets[:, None]
        return Pairs(goals, positive, positive | exhausted[:, None] | ~own)


class OwnGoal:
    """Column i < A is anchor i's hindsight goal, its only positive; column A + i is its problem's own target.

    An anchor without a hindsight goal has no positive, and its column is not a candidate for any anchor.

    For losses that take one positive per row (InfoNCE). Pairs with the same goal and other pairs known to be reachable
    are not candidates. Target columns, and any column with the target of the anchor's own problem, are candidates only
    if the search certified a dead end.
    """

    def __call__(
        self,
        hindsight: Int[ndarray, " A"],
        targets: Int[ndarray, " A"],
        reached: Bool[ndarray, "A V"],
        exhausted: Bool[ndarray, " A"],
    ) -> Pairs:
        anchors = len(hindsight)
        goals = np.concatenate([hindsight, targets])
        positive = np.zeros((anchors, 2 * anchors), dtype=bool)
        positive[np.arange(anchors), np.arange(anchors)] = hindsight != NONE
        unreached = ~reached[:, goals] & (goals != NONE)
        unreached[:, anchors:] &= exhausted[:, None]
        unreached &= exhausted[:, None] | (goals[None] != targets[:, None])
        return Pairs(goals, positive, positive | unreached)


@dataclass(kw_only=True, eq=False, repr=False)
class HindsightStates(GameStates):
    """Batches of A = ``batch_size`` anchors, each from its own trajectory of ``numbers`` numbers.

    ``state_actions`` (A, 6), ``goals`` (C,).
    """

    game: CountdownGame = field(init=False)
    task: Task
    numbers: int
    number_range: Sequence[int]
    target_range: Sequence[int]
    """These four are those of :class:`CountdownGame`. Targets of the trajectories' problems are in ``target_range``."""
    exhaust_up_to: int
    """Maximum size of a state for an exhaustive search under it. From a larger state the search follows one random
    branch down to this size.
    """
    pairing: Pairing

    def __post_init__(self) -> None:
        self.game = CountdownGame(
            task=self.task, numbers=self.numbers, number_range=self.number_range, target_range=self.target_range
        )
        super().__post_init__()
        if self.exhaust_up_to < 1:
            raise ValueError(f"exhaust_up_to must be at least 1, a number left, got {self.exhaust_up_to}")

    def columns(self, anchors: Mapping[int, Int[ndarray, "_ _"]], rng: np.random.Generator) -> Pairs:
        found, exhausted = [], []
        for states in anchors.values():
            moves = max(0, states.shape[1] - self.exhaust_up_to)
            found.append(reached_values(self.game.play(states, moves=moves, rng=rng)))
            exhausted.append(np.full(len(states), moves == 0))
        reached = np.concatenate(found)
        low, high = self.target_range
        hindsight = draw_reached(reached, (low, high), rng)
        targets = rng.integers(low, high + 1, len(reached))
        return self.pairing(hindsight, targets, reached, np.concatenate(exhausted))


def draw_reached(
    reached: Bool[ndarray, "A V"], goal_range: Sequence[int], rng: np.random.Generator
) -> Int[ndarray, " A"]:
    """Draws one reached value per row, uniform over those in the range; ``NONE`` if the row reached none of them."""
    low, high = goal_range
    choices = reached[:, low : high + 1]
    rank = (rng.random(len(reached)) * choices.sum(axis=1)).astype(np.int64)
    drawn = (choices.cumsum(axis=1) > rank[:, None]).argmax(axis=1) + low
    return np.where(choices.any(axis=1), drawn, NONE)

"""States of random play against what random plays from them reached: contrastive data of any game, without a search.

From each anchor k random plays are made to their end. Each end is one draw of a goal from p(g | s) of random play, and
each draw is one column of the batch. A column is a positive of its own anchor and a negative of all others, at the
frequency at which the batch drew it. So the optimum of binary NCE and of symmetric InfoNCE is

    f(s, g) = log p(g | s) − log p(g) + constant.

    anchor 0 ──k plays──► 24  7  24          columns   24   7  24  31  24
    anchor 1 ──k plays──► 31  –  24          anchor 0   +   +   +   −   −      – : no goal, no column
    anchor 2 ──k plays──►  –  –   –          anchor 1   −   −   −   +   +
                                             anchor 2   −   −   −   −   −

Nothing is known to be unreachable: some negatives are goals that the anchor could reach but did not. Each validation
logs their share. ``AnyOfPlays`` counts a goal once for each anchor, as reached in any of the k plays or in none. With
many plays these are the exact labels of an exhaustive search, but for sampling errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from contrastive_reasoning.critics.base import NONE, Pairs
from contrastive_reasoning.ranges import at_least
from datamodules.game_states import GameStates


@runtime_checkable
class Positives(Protocol):
    """Makes the columns of a batch from the draws of its anchors; for example ``EveryDraw`` or ``AnyOfPlays``."""

    def __call__(self, draws: Int[ndarray, "A k"]) -> Pairs:
        """``draws`` are the goals that k plays from each anchor reached, or ``NONE``."""
        ...


class EveryDraw:
    """One column for each draw, with multiplicity: positive for its own anchor, negative for all others."""

    def __call__(self, draws: Int[ndarray, "A k"]) -> Pairs:
        owner, play = (draws != NONE).nonzero()
        positive = owner[None] == np.arange(len(draws))[:, None]
        return Pairs(draws[owner, play], positive, np.ones_like(positive))


class AnyOfPlays:
    """One column for each goal of the batch: positive for the anchors that reached it in any of their plays."""

    def __call__(self, draws: Int[ndarray, "A k"]) -> Pairs:
        goals = np.unique(draws[draws != NONE])
        positive = (draws[:, :, None] == goals).any(axis=1)
        return Pairs(goals, positive, np.ones_like(positive))


@dataclass(kw_only=True, eq=False, repr=False)
class ContrastivePlays(GameStates):
    """Anchors with the goals that ``plays`` random plays from each of them reached."""

    plays: int
    """k, plays from each anchor."""
    positives: Positives

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(1, plays=self.plays)

    def columns(self, anchors: Mapping[int, Int[ndarray, "_ _"]], rng: np.random.Generator) -> Pairs:
        draws = []
        for moves, states in anchors.items():
            ends = self.game.play(states.repeat(self.plays, axis=0), moves=self.game.horizon - moves, rng=rng)
            draws.append(self.game.goal(ends).reshape(len(states), self.plays))
        return self.positives(np.concatenate(draws))

"""Random states of Countdown against the values that LongProc's depth-first search writes under them.

From each anchor the search looks for a random target, in LongProc's order, until it finds the target or has tried
everything. Every value that it writes at the end of a branch is a positive of the anchor; the other goals of the batch
are negatives. A search that stops early has not shown all that can be reached, so some negatives are wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from contrastive_reasoning.critics.base import Pairs
from contrastive_reasoning.tasks.countdown.search import search
from datamodules.countdown_game import CountdownGame
from datamodules.game_states import GameStates


@dataclass(kw_only=True, eq=False, repr=False)
class WrittenSearches(GameStates):
    """Anchors with every value that a search from each of them wrote; one column for each distinct goal."""

    game: CountdownGame

    def columns(self, anchors: Mapping[int, Int[ndarray, "_ _"]], rng: np.random.Generator) -> Pairs:
        low, high = self.game.target_range
        written = [
            {value for (value,) in ends_of_search(numbers, int(rng.integers(low, high + 1))) if low <= value <= high}
            for states in anchors.values()
            for numbers in states.tolist()
        ]
        goals = np.array(sorted(set().union(*written)), dtype=np.int64)
        positive = np.array([[goal in values for goal in goals.tolist()] for values in written], dtype=bool)
        return Pairs(goals, positive, np.ones_like(positive))


def ends_of_search(numbers: list[int], target: int) -> list[tuple[int, ...]]:
    """The states of one number that the search for ``target`` visits."""
    return [state for state in search(numbers, target).states if len(state) == 1]

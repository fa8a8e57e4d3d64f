"""Countdown as a game of random play: the legal moves of its rules, and the last number as the goal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Int
from numpy import ndarray
from torch import Tensor

from contrastive_reasoning.critics.base import NONE, CriticOracleBatch
from contrastive_reasoning.tasks.base import Task
from contrastive_reasoning.tasks.countdown.states import WIDTH
from datamodules.game import Game
from datamodules.oracle_states import held_out_states, oracle_batches, target_form
from datamodules.random_play import VALUES, children, encode_boards, is_held_out, keys_of, reached_values


@dataclass(kw_only=True, eq=False)
class CountdownGame(Game):
    """Plays of ``numbers`` random numbers down to one, which is the goal if it lies in ``target_range``.

    ``features`` are rows of six numbers, as ``encode_state`` makes them.
    """

    task: Task
    """Its validation and test problems are held out, and so are the fixed oracle states and their problems. No play
    starts from the numbers of a held-out state, and no anchor has them, whatever its start.
    """
    numbers: int
    number_range: Sequence[int]
    target_range: Sequence[int]
    """Lowest and highest goal."""

    def __post_init__(self) -> None:
        if not 2 <= self.numbers <= WIDTH:
            raise ValueError(f"numbers must be 2 to {WIDTH}, got {self.numbers}")
        for name in ("number_range", "target_range"):
            bounds = tuple(getattr(self, name))
            if len(bounds) != 2 or not 0 <= bounds[0] <= bounds[1] < VALUES:
                choice = f"[lowest, highest] with 0 ≤ lowest ≤ highest ≤ {VALUES - 1}"
                raise ValueError(f"{name} must be {choice}, got {[*bounds]}")
        self.horizon = self.numbers - 1

    @cached_property
    def held_out(self) -> Int[ndarray, " H"]:
        return keys_of(held_out_states(self.task))

    def starts(self, count: int, rng: np.random.Generator) -> Int[ndarray, "N K"]:
        low, high = self.number_range
        return rng.integers(low, high + 1, (count, self.numbers))

    def legal_moves(self, states: Int[ndarray, "N K"]) -> tuple[Int[ndarray, "N M J"], Bool[ndarray, "N M"]]:
        options = children(states)
        return options, options[..., 0] >= 0

    def goal(self, states: Int[ndarray, "N 1"]) -> Int[ndarray, " N"]:
        low, high = self.target_range
        last = states[:, 0]
        return np.where((last >= low) & (last <= high), last, NONE)

    def features(self, states: Int[ndarray, "N K"]) -> Tensor:
        return encode_boards(states)

    def allowed(self, states: Int[ndarray, "N K"]) -> Bool[ndarray, " N"]:
        return ~is_held_out(states, self.held_out)

    def anchors(self, count: int, *, moves: int, rng: np.random.Generator) -> Int[ndarray, "N K"]:
        """As :meth:`Game.anchors`; every second finished play is set to a random goal, a rare end of play."""
        anchors = super().anchors(count, moves=moves, rng=rng)
        if moves == self.horizon:
            low, high = self.target_range
            anchors[::2, 0] = rng.integers(low, high + 1, len(anchors[::2]))
        return anchors

    def reachable(self, states: Int[ndarray, "N K"], goals: Int[ndarray, " C"]) -> Bool[ndarray, "N C"]:
        return reached_values(states)[:, goals]

    def oracle_batches(self, batch_size: int) -> list[CriticOracleBatch]:
        return oracle_batches(target_form, batch_size=batch_size)

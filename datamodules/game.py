"""The interface of a game that a critic learns from random plays of, and random play of many states at once.

States are integer arrays of K numbers per row; K may change from move to move. A play makes ``horizon`` random moves,
each uniform over the legal ones, and a state without a legal move ends its play early. What the last state has reached
is the play's goal.

    start ──random──► anchor, after m moves ──random──► goal(last state), after the other horizon − m moves
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from jaxtyping import Bool, Int
from numpy import ndarray
from torch import Tensor

from contrastive_reasoning.critics.base import CriticOracleBatch

ATTEMPTS = 100
"""How often anchors that are not allowed are drawn again."""


class Game(ABC):
    """States, legal moves and goals. A critic's data needs nothing else."""

    horizon: int
    """Moves of a whole play from its start."""

    @abstractmethod
    def starts(self, count: int, rng: np.random.Generator) -> Int[ndarray, "N K"]:
        """Draws N = ``count`` starts."""

    @abstractmethod
    def legal_moves(self, states: Int[ndarray, "N K"]) -> tuple[Int[ndarray, "N M J"], Bool[ndarray, "N M"]]:
        """Returns the states that M moves lead to, and which of the moves are legal."""

    @abstractmethod
    def goal(self, states: Int[ndarray, "N K"]) -> Int[ndarray, " N"]:
        """Returns what a play that ends in each state has reached, an integer ≥ 0, or ``NONE``."""

    @abstractmethod
    def features(self, states: Int[ndarray, "N K"]) -> Tensor:
        """Encodes N states for the critic. States of all sizes give rows of one shape."""

    def allowed(self, states: Int[ndarray, "N K"]) -> Bool[ndarray, " N"]:
        """Returns whether each state may be a start or an anchor; by default all."""
        return np.ones(len(states), dtype=bool)

    def reachable(self, states: Int[ndarray, "N K"], goals: Int[ndarray, " C"]) -> Bool[ndarray, "N C"] | None:
        """Returns the exact answer, for reports alone; None if the game has no exact search."""
        return None

    def oracle_batches(self, batch_size: int) -> list[CriticOracleBatch]:
        """Returns held-out states with exact labels, for validation alone; by default none."""
        return []

    def anchors(self, count: int, *, moves: int, rng: np.random.Generator) -> Int[ndarray, "N K"]:
        """Draws the states of N plays after ``moves`` moves; a play with a start or anchor not allowed is redrawn.

        Raises:
            ValueError: if this applies to nearly all plays.
        """
        kept: list[Int[ndarray, "_ K"]] = []
        missing = count
        for _ in range(ATTEMPTS):
            states = self.starts(missing, rng)
            allowed = self.allowed(states)
            states = self.play(states, moves=moves, rng=rng)
            kept.append(states[allowed & self.allowed(states)])
            missing -= len(kept[-1])
            if not missing:
                return np.concatenate(kept)
        raise ValueError(f"{type(self).__name__}: nearly all states after {moves} moves are held out")

    def play(self, states: Int[ndarray, "N K"], *, moves: int, rng: np.random.Generator) -> Int[ndarray, "N J"]:
        """Makes ``moves`` random moves from each state, uniform over its legal moves.

        Raises:
            ValueError: if moves change the size of states, and a state has no legal move.
        """
        for _ in range(moves):
            options, legal = self.legal_moves(states)
            lots = np.where(legal, rng.random(legal.shape), -1.0)
            after = options[np.arange(len(states)), lots.argmax(axis=1)]
            stuck = ~legal.any(axis=1)
            if stuck.any():
                if after.shape != states.shape:
                    raise ValueError(f"{type(self).__name__}: {states[stuck][0].tolist()} has no legal move")
                after[stuck] = states[stuck]
            states = after
        return states

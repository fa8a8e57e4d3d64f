"""A game of one's own and its critic: a grid of rooms with one-way doors, and f(s, g) = ⟨φ(s), ψ(g)⟩ of its rooms."""

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor, nn

from contrastive_reasoning.critics import TwoTowerCritic
from contrastive_reasoning.losses.similarity import Similarity
from contrastive_reasoning.policies.seeded import seeded
from datamodules.game import Game

STEPS = np.array([[0, 1], [0, -1], [1, 0], [-1, 0]])


class Doors(Game):
    """Rooms of a `size` × `size` grid. A move enters a neighbour; of the doors up, only every third one opens.

    States are (N, 2): row and column. The goal of a play is the room in which it ends, row · size + column.
    """

    def __init__(self, *, size: int, moves: int) -> None:
        self.size = size
        self.horizon = moves

    def starts(self, count: int, rng: np.random.Generator) -> Int[ndarray, "N 2"]:
        return rng.integers(0, self.size, (count, 2))

    def legal_moves(self, states: Int[ndarray, "N 2"]) -> tuple[Int[ndarray, "N 4 2"], Bool[ndarray, "N 4"]]:
        after = states[:, None] + STEPS
        inside = ((after >= 0) & (after < self.size)).all(axis=2)
        opens = (STEPS[:, 0] >= 0) | (states.sum(axis=1) % 3 == 0)[:, None]
        return after, inside & opens

    def goal(self, states: Int[ndarray, "N 2"]) -> Int[ndarray, " N"]:
        return states[:, 0] * self.size + states[:, 1]

    def features(self, states: Int[ndarray, "N 2"]) -> Int[Tensor, " N"]:
        return torch.from_numpy(self.goal(states))


class DoorsCritic(TwoTowerCritic):
    """An embedding of the room one is in, and one of the room one wants to be in."""

    def __init__(self, *, size: int, dimension: int, similarity: Similarity, seed: int) -> None:
        super().__init__(similarity=similarity)
        with seeded(seed):
            self.here = nn.Embedding(size**2, dimension)
            self.there = nn.Embedding(size**2, dimension)

    def encode_state_action(self, state_actions: Int[Tensor, " N"]) -> Float[Tensor, "N D"]:
        return self.here(state_actions)

    def encode_goal(self, goals: Int[Tensor, " N"]) -> Float[Tensor, "N D"]:
        return self.there(goals)

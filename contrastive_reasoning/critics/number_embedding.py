"""The numeric critic of the critic paper's later code: one embedding for each number of an array, not for its digits.

    φ(s, a) = MLP_a(e(n₁) … e(n₄)),   n the array at the end of the action's line, descending, filled with blanks
    ψ(g)    = MLP_g(e′(n₁) … e′(n₄)), n the array of the goal's line, with a separate embedding
    MLP     linear, LeakyReLU, linear; f is the cosine if ``similarity`` is

A decimal is read as 500 plus its whole part, a number above the largest as the largest. The initial array is not read.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from contrastive_reasoning.critics.base import TwoTowerCritic, numbers_and_target
from contrastive_reasoning.losses.similarity import Similarity
from contrastive_reasoning.policies.seeded import seeded
from contrastive_reasoning.ranges import at_least
from contrastive_reasoning.tasks.base import Problem, Step
from contrastive_reasoning.tasks.countdown.indented import numbers_in
from contrastive_reasoning.tasks.countdown.states import PADDING, encode_state

DECIMAL = 500
"""Added to the whole part of a decimal."""


def array_of(line: str) -> list[int]:
    """Returns the numbers of the state at the end of a line; a decimal is ``DECIMAL`` plus its whole part.

    >>> array_of("|- Try 37 / 17 = 2.2 … ### Current State: [2.2, 26]")
    [502, 26]
    """
    parts = [number.partition(".") for number in numbers_in(line)]
    return [int(whole) + (DECIMAL if point else 0) for whole, point, _ in parts]


class NumberSlots(nn.Module):
    """Rows of arrays, descending and padded with −1 → the concatenated embeddings of their ``slots`` largest numbers.

    An array with fewer numbers has the learned blank in the remaining slots.
    """

    def __init__(self, *, slots: int, largest: int, dimension: int) -> None:
        super().__init__()
        self.slots = slots
        self.largest = largest
        self.table = nn.Embedding(largest + 1, dimension)
        self.blank = nn.Parameter(torch.randn(dimension))
        self.outputs = slots * dimension

    def forward(self, arrays: Int[Tensor, "N W"]) -> Float[Tensor, "N E"]:
        numbers = arrays[:, : self.slots]
        numbers = nn.functional.pad(numbers, (0, self.slots - numbers.shape[1]), value=PADDING)
        embedded = self.table(numbers.clamp(0, self.largest))
        return torch.where((numbers == PADDING)[..., None], self.blank, embedded).flatten(start_dim=1)


class NumberCritic(TwoTowerCritic):
    """f(array of the action; array of the goal).

    ``state_actions`` is (N, W) long: arrays in descending order, padded with −1; so is ``goals``, or (N,) targets.

    Args:
        number_dimension: width of one number's embedding.
        slots: how many numbers of an array are read, the largest first.
        largest: the largest number with its own embedding.
        hidden_dimension: width of the one hidden layer.
        dimension: D, the width of the space in which the two are compared.
        similarity: (A, D), (C, D) → (A, C).

    Raises ValueError: a size below 1.
    """

    values_states = True

    def __init__(
        self,
        *,
        number_dimension: int,
        slots: int,
        largest: int,
        hidden_dimension: int,
        dimension: int,
        similarity: Similarity,
        seed: int,
    ) -> None:
        super().__init__(similarity=similarity)
        at_least(1, number_dimension=number_dimension, slots=slots, largest=largest)
        at_least(1, hidden_dimension=hidden_dimension, dimension=dimension)
        with seeded(seed):  # the initial weights depend on the order of these lines
            self.action_numbers = NumberSlots(slots=slots, largest=largest, dimension=number_dimension)
            self.goal_numbers = NumberSlots(slots=slots, largest=largest, dimension=number_dimension)
            self.action_head = _head(self.action_numbers.outputs, hidden_dimension, dimension)
            self.goal_head = _head(self.goal_numbers.outputs, hidden_dimension, dimension)

    def encode_state_action(self, state_actions: Int[Tensor, "N W"]) -> Float[Tensor, "N D"]:
        return self.action_head(self.action_numbers(state_actions))

    def encode_goal(self, goals: Tensor) -> Float[Tensor, "N D"]:
        return self.goal_head(self.goal_numbers(goals[:, None] if goals.ndim == 1 else goals))

    def encode_steps(
        self, problem: Problem, completion: str, steps: Sequence[Step]
    ) -> tuple[Int[Tensor, "N W"], Int[Tensor, "N 1"]]:
        """Encodes the array that each step reaches as the state and the array [target] as the goal."""
        _, target = numbers_and_target(problem)
        return torch.tensor([encode_state(step.state) for step in steps]), torch.tensor([[target]] * len(steps))

    def encode_actions(self, states: Sequence[str], actions: Sequence[str]) -> Int[Tensor, "N W"]:
        """Encodes the array at the end of each action's line; the lines before it are not read."""
        return self._arrays(actions)

    def encode_goals(self, goals: Sequence[str]) -> Int[Tensor, "N W"]:
        """Encodes the array at the end of each goal's line; a line without an array has only blank slots."""
        return self._arrays(goals)

    def _arrays(self, lines: Sequence[str]) -> Int[Tensor, "N W"]:
        slots = self.action_numbers.slots
        arrays = [sorted(array_of(line), reverse=True)[:slots] for line in lines]
        return torch.tensor([array + [PADDING] * (slots - len(array)) for array in arrays], dtype=torch.long)


def _head(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.LeakyReLU(), nn.Linear(hidden, outputs))

"""Numeric critics on Countdown arrays, with fewer than a million parameters: V1 and V2 of the published study.

V1: state = the problem's initial array, action = a random intermediate array, goal = a random array after it.
V2: state = an intermediate array (no initial array, no action), goal = the problem's final target.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from contrastive_reasoning.critics.base import TwoTowerCritic, numbers_and_target
from contrastive_reasoning.losses.similarity import Similarity
from contrastive_reasoning.policies.seeded import seeded
from contrastive_reasoning.tasks.base import Problem, Step
from contrastive_reasoning.tasks.countdown.states import WIDTH, encode_state

DIGITS = 4
ABSENT = 10
"""The symbol for every digit of a padding entry (−1)."""


def digits_of(numbers: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape 4"]:
    """Returns the decimal digits, most significant first; ``ABSENT`` four times for a negative number.

    >>> digits_of(torch.tensor([1045, -1])).tolist()
    [[1, 0, 4, 5], [10, 10, 10, 10]]
    """
    places = torch.tensor([10**power for power in reversed(range(DIGITS))], device=numbers.device)
    return (numbers[..., None] // places % 10).where(numbers[..., None] >= 0, ABSENT)


class DigitEmbedding(nn.Module):
    """Rows of ``width`` numbers → the concatenated embeddings of all their digits, ``width · 4 · dimension`` wide.

    Rows of twice the width hold two concatenated arrays that share the embedding.
    """

    def __init__(self, *, width: int, dimension: int) -> None:
        super().__init__()
        self.table = nn.Embedding(ABSENT + 1, dimension)
        self.outputs = width * DIGITS * dimension

    def forward(self, numbers: Int[Tensor, "N W"]) -> Float[Tensor, "N E"]:
        return self.table(digits_of(numbers)).flatten(start_dim=1)


def projection_head(inputs: int, *, hidden: int, layers: int, outputs: int) -> nn.Sequential:
    """Builds ``layers`` hidden layers (linear, LayerNorm, GELU) and a linear map; with 0 layers only the linear map.

    Raises ValueError: ``layers`` is negative.
    """
    if layers < 0:
        raise ValueError(f"a projection head has 0 or more hidden layers, got {layers}")
    widths = [inputs] + [hidden] * layers
    blocks: list[nn.Module] = []
    for wide, narrow in pairwise(widths):
        blocks += [nn.Linear(wide, narrow), nn.LayerNorm(narrow), nn.GELU()]
    return nn.Sequential(*blocks, nn.Linear(widths[-1], outputs))


class NumericV1(TwoTowerCritic):
    """f(initial array, intermediate array; later array), with a separate digit embedding for the goal.

    ``state_actions`` is (N, 2, 6) long: initial and intermediate array; ``goals`` is (N, 6) long: an array.
    Each array is sorted in descending order and padded with −1.

    Args:
        digit_dimension: width of one digit's embedding.
        hidden_dimension: width of the hidden layers of the projection heads.
        dimension: D, the width of the space in which state–actions and goals are compared.
        similarity: (A, D), (C, D) → (A, C).
    """

    def __init__(
        self,
        *,
        digit_dimension: int,
        hidden_dimension: int,
        hidden_layers: int,
        dimension: int,
        similarity: Similarity,
        seed: int,
    ) -> None:
        super().__init__(similarity=similarity)
        shape = {"hidden": hidden_dimension, "layers": hidden_layers, "outputs": dimension}
        with seeded(seed):  # the initial weights depend on the order of these lines
            self.array_digits = DigitEmbedding(width=WIDTH, dimension=digit_dimension)
            self.goal_digits = DigitEmbedding(width=WIDTH, dimension=digit_dimension)
            self.state_action_head = projection_head(2 * self.array_digits.outputs, **shape)
            self.goal_head = projection_head(self.goal_digits.outputs, **shape)

    def encode_state_action(self, state_actions: Int[Tensor, "N 2 6"]) -> Float[Tensor, "N D"]:
        return self.state_action_head(self.array_digits(state_actions.flatten(start_dim=1)))

    def encode_goal(self, goals: Int[Tensor, "N 6"]) -> Float[Tensor, "N D"]:
        return self.goal_head(self.goal_digits(goals))

    def encode_steps(
        self, problem: Problem, completion: str, steps: Sequence[Step]
    ) -> tuple[Int[Tensor, "N 2 6"], Int[Tensor, "N 6"]]:
        """Encodes the problem's numbers as the initial array, each step's array as the action, [target] as the goal."""
        numbers, target = numbers_and_target(problem)
        initial = encode_state(numbers)
        state_actions = [[initial, encode_state(step.state)] for step in steps]
        goals = [encode_state([target])] * len(steps)
        return _rows(state_actions, 2, WIDTH), _rows(goals, WIDTH)


class NumericV2(TwoTowerCritic):
    """f(intermediate array; target).

    ``state_actions`` is (N, 6) long: the array, sorted in descending order and padded with −1; ``goals`` is (N,) long.

    The arguments are those of ``NumericV1``.
    """

    values_states = True

    def __init__(
        self,
        *,
        digit_dimension: int,
        hidden_dimension: int,
        hidden_layers: int,
        dimension: int,
        similarity: Similarity,
        seed: int,
    ) -> None:
        super().__init__(similarity=similarity)
        shape = {"hidden": hidden_dimension, "layers": hidden_layers, "outputs": dimension}
        with seeded(seed):  # the initial weights depend on the order of these lines
            self.array_digits = DigitEmbedding(width=WIDTH, dimension=digit_dimension)
            self.target_digits = DigitEmbedding(width=1, dimension=digit_dimension)
            self.state_action_head = projection_head(self.array_digits.outputs, **shape)
            self.goal_head = projection_head(self.target_digits.outputs, **shape)

    def encode_state_action(self, state_actions: Int[Tensor, "N 6"]) -> Float[Tensor, "N D"]:
        return self.state_action_head(self.array_digits(state_actions))

    def encode_goal(self, goals: Int[Tensor, " N"]) -> Float[Tensor, "N D"]:
        return self.goal_head(self.target_digits(goals[:, None]))

    def encode_steps(
        self, problem: Problem, completion: str, steps: Sequence[Step]
    ) -> tuple[Int[Tensor, "N 6"], Int[Tensor, " N"]]:
        """Encodes the array that each step reaches as the state and the problem's target as the goal."""
        _, target = numbers_and_target(problem)
        return _rows([encode_state(step.state) for step in steps], WIDTH), _rows([target] * len(steps))


def _rows(values: Sequence[object], *shape: int) -> Tensor:
    return torch.tensor(values, dtype=torch.long).reshape(len(values), *shape)

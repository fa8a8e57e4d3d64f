"""Numeric critics on Countdown arrays, with fewer than a million parameters: V1 and V2 of the published study.

V1: state = the problem's initial array, action = a random intermediate array, goal = a random array after it.
V2: state = an intermediate array (no initial array, no action), goal = the problem's final target.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from contrastive_reasoning.critics.digits import DigitEmbedding
from contrastive_reasoning.critics.dot_product import TwoTowerCritic
from contrastive_reasoning.critics.projection import projection_head
from contrastive_reasoning.losses.similarity import Similarity
from contrastive_reasoning.policies.seeded import seeded
from contrastive_reasoning.tasks.base import Problem, Step
from contrastive_reasoning.tasks.countdown.encoding import WIDTH, encode_state


class NumericV1(TwoTowerCritic):
    """f(initial array, intermediate array; later array), with a digit embedding of its own for the goal.

    ``state_actions`` is (N, 2, 6) long: initial and intermediate array; ``goals`` is (N, 6) long: an array.
    Each array is sorted in descending order and padded with −1.

    Args:
        digit_dimension: width of one digit's embedding.
        hidden_dimension: width of the hidden layers of the projection heads.
        hidden_layers: how many they are.
        dimension: D, the width of the space in which state–actions and goals are compared.
        similarity: (A, D), (C, D) → (A, C).
        seed: of the initial weights.
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
        with seeded(seed):
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
        """Initial array = the problem's numbers, action = the array the step reaches, goal = the array [target]."""
        numbers, target = numbers_and_target(problem)
        initial = encode_state(numbers)
        state_actions = [[initial, encode_state(step.state)] for step in steps]
        goals = [encode_state([target])] * len(steps)
        return _rows(state_actions, 2, WIDTH), _rows(goals, WIDTH)


class NumericV2(TwoTowerCritic):
    """f(intermediate array; target).

    ``state_actions`` is (N, 6) long: the array, sorted in descending order and padded with −1; ``goals`` is (N,) long.

    Args:
        digit_dimension: width of one digit's embedding.
        hidden_dimension: width of the hidden layers of the projection heads.
        hidden_layers: how many they are.
        dimension: D, the width of the space in which states and goals are compared.
        similarity: (A, D), (C, D) → (A, C).
        seed: of the initial weights.
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
        with seeded(seed):
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
        """State = the array the step reaches, goal = the problem's target."""
        _, target = numbers_and_target(problem)
        return _rows([encode_state(step.state) for step in steps], WIDTH), _rows([target] * len(steps))


def numbers_and_target(problem: Problem) -> tuple[Sequence[int], int]:
    """What a numeric critic reads of a Countdown problem.

    Raises:
        ValueError: the problem has no numbers or no target: it is of another task.
    """
    missing = [name for name in ("numbers", "target") if name not in problem.fields]
    if missing:
        raise ValueError(f"numeric critics read Countdown problems; problem {problem.id!r} has no {missing[0]}")
    return problem.fields["numbers"], problem.fields["target"]


def _rows(values: Sequence[object], *shape: int) -> Tensor:
    return torch.tensor(values, dtype=torch.long).reshape(len(values), *shape)

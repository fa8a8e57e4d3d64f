"""A critic of Countdown: the sum of embeddings of the numbers that are left, f(s, g) = ⟨Σ φ(n), ψ(g)⟩."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from contrastive_reasoning.critics import TwoTowerCritic
from contrastive_reasoning.critics.base import numbers_and_target
from contrastive_reasoning.losses.similarity import Similarity
from contrastive_reasoning.policies.seeded import seeded
from contrastive_reasoning.tasks import Problem, Step
from contrastive_reasoning.tasks.countdown import encode_state


class BagCritic(TwoTowerCritic):
    """States are (N, 6): numbers padded with −1; goals are (N,): targets. Numbers beyond `largest` look alike."""

    values_states = True

    def __init__(self, *, largest: int, dimension: int, similarity: Similarity, seed: int) -> None:
        super().__init__(similarity=similarity)
        self.largest = largest
        with seeded(seed):
            self.numbers = nn.Embedding(largest + 2, dimension, padding_idx=0)
            self.targets = nn.Embedding(largest + 2, dimension)

    def encode_state_action(self, state_actions: Int[Tensor, "N 6"]) -> Float[Tensor, "N D"]:
        return self.numbers(state_actions.clamp(max=self.largest) + 1).sum(dim=1)

    def encode_goal(self, goals: Int[Tensor, " N"]) -> Float[Tensor, "N D"]:
        return self.targets(goals.clamp(max=self.largest) + 1)

    def encode_steps(self, problem: Problem, completion: str, steps: Sequence[Step]) -> tuple[Tensor, Tensor]:
        _, target = numbers_and_target(problem)
        states = torch.tensor([encode_state(step.state) for step in steps], dtype=torch.long).reshape(len(steps), 6)
        return states, torch.full((len(steps),), target)

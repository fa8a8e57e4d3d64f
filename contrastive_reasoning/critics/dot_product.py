"""Critics with two towers: f(s, a, g) = similarity(φ(s, a), ψ(g)). With the dot product, φ(s, a)ᵀψ(g)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from contrastive_reasoning.losses.similarity import Similarity, of_pairs


class TwoTowerCritic(nn.Module, ABC):
    """Scores all pairs, or given pairs, of two embeddings; the towers are the subclass's."""

    def __init__(self, *, similarity: Similarity) -> None:
        super().__init__()
        self.similarity = similarity

    @abstractmethod
    def encode_state_action(self, state_actions: Any) -> Float[Tensor, "A D"]:
        """φ: one embedding per state–action."""

    @abstractmethod
    def encode_goal(self, goals: Any) -> Float[Tensor, "C D"]:
        """ψ: one embedding per goal."""

    def forward(self, state_actions: Any, goals: Any) -> Float[Tensor, "A C"]:
        """f for every state–action with every goal."""
        return self.similarity(self.encode_state_action(state_actions), self.encode_goal(goals))

    def pairs(self, state_actions: Any, goals: Any) -> Float[Tensor, " N"]:
        """f for N state–actions, each with its own goal."""
        return of_pairs(self.similarity, self.encode_state_action(state_actions), self.encode_goal(goals))

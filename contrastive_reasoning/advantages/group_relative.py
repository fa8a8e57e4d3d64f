"""Rewards relative to their group: divided by its standard deviation (GRPO), centred, or against the others (RLOO).

GroupRelative    Aᵢ = (rᵢ − mean(r)) / (std(r) + ε)         arXiv:2402.03300
MeanCentred      Aᵢ = rᵢ − mean(r)                          Dr.GRPO, arXiv:2503.20783
LeaveOneOut      Aᵢ = rᵢ − mean of the other rewards        RLOO, arXiv:2402.14740
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from contrastive_reasoning.advantages.base import apply_per_group, centre, on_tokens
from contrastive_reasoning.ranges import at_least
from contrastive_reasoning.rewards.base import Credit


@dataclass(frozen=True, kw_only=True)
class GroupRelative:
    """The outcome relative to its group, the same on every token. A group of equal rewards gets exactly 0.

    The standard deviation divides by G − 1.
    """

    normalise_std: bool
    epsilon: float
    """Added to the standard deviation."""

    def __post_init__(self) -> None:
        at_least(0, epsilon=self.epsilon)

    def __call__(self, credit: Credit, mask: Bool[Tensor, "B T"], group_size: int) -> Float[Tensor, "B T"]:
        return on_tokens(apply_per_group(credit, group_size, self.relative), mask)

    def relative(self, rewards: Float[Tensor, "P G"]) -> Float[Tensor, "P G"]:
        """Returns the advantages of whole groups."""
        advantages = centre(rewards)
        if not self.normalise_std:
            return advantages
        spread = rewards.std(dim=1, keepdim=True) + self.epsilon
        return advantages / spread.where(advantages.any(dim=1, keepdim=True), spread.new_ones(()))


@dataclass(frozen=True, kw_only=True)
class LeaveOneOut:
    """The outcome minus an unbiased baseline: the mean over the other rollouts of the group.

    rᵢ − (Σr − rᵢ)/(G−1)  =  G/(G−1) · (rᵢ − mean(r)),  so it is the mean-centred advantage, rescaled.
    """

    def __call__(self, credit: Credit, mask: Bool[Tensor, "B T"], group_size: int) -> Float[Tensor, "B T"]:
        return on_tokens(apply_per_group(credit, group_size, self.relative), mask)

    def relative(self, rewards: Float[Tensor, "P G"]) -> Float[Tensor, "P G"]:
        """Returns the advantages of whole groups."""
        size = rewards.shape[1]
        return centre(rewards) * (size / (size - 1))


@dataclass(frozen=True, kw_only=True)
class MeanCentred:
    """``GroupRelative`` without the division, so that problems with rare successes get no extra weight."""

    def __call__(self, credit: Credit, mask: Bool[Tensor, "B T"], group_size: int) -> Float[Tensor, "B T"]:
        return GroupRelative(normalise_std=False, epsilon=0.0)(credit, mask, group_size)

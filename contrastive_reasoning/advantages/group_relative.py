"""Group-relative advantage of GRPO, arXiv:2402.03300:  Aᵢ = (rᵢ − mean(r)) / (std(r) + ε) over the group."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from contrastive_reasoning.advantages.base import among_rewarded, centred, on_tokens
from contrastive_reasoning.rewards.base import Credit


@dataclass(frozen=True, kw_only=True)
class GroupRelative:
    """The outcome against its group; the same on every token. A group of equal rewards gets exactly 0.

    The standard deviation is the unbiased one (divided by G − 1). Without ``normalise_std`` this is the advantage of
    Dr.GRPO, arXiv:2503.20783.
    """

    normalise_std: bool
    epsilon: float
    """Added to the standard deviation."""

    def __post_init__(self) -> None:
        if self.epsilon < 0:
            raise ValueError(f"epsilon must not be negative, got {self.epsilon}")

    def __call__(self, credit: Credit, mask: Bool[Tensor, "B T"], group_size: int) -> Float[Tensor, "B T"]:
        return on_tokens(among_rewarded(credit, group_size, self.relative), mask)

    def relative(self, rewards: Float[Tensor, "P G"]) -> Float[Tensor, "P G"]:
        """The advantages of whole groups."""
        advantages = centred(rewards)
        if not self.normalise_std:
            return advantages
        spread = rewards.std(dim=1, keepdim=True) + self.epsilon
        return advantages / spread.where(advantages.any(dim=1, keepdim=True), spread.new_ones(()))

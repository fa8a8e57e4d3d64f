"""Leave-one-out advantage (RLOO), arXiv:2402.14740:  Aᵢ = rᵢ − mean of the other rewards of the group."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from contrastive_reasoning.advantages.base import among_rewarded, centred, on_tokens
from contrastive_reasoning.rewards.base import Credit


@dataclass(frozen=True, kw_only=True)
class LeaveOneOut:
    """An unbiased baseline: the rollout is not part of its own mean.

    rᵢ − (Σr − rᵢ)/(G−1)  =  G/(G−1) · (rᵢ − mean(r)),  so it is the mean-centred advantage, rescaled.
    """

    def __call__(self, credit: Credit, mask: Bool[Tensor, "B T"], group_size: int) -> Float[Tensor, "B T"]:
        return on_tokens(among_rewarded(credit, group_size, against_others), mask)


def against_others(rewards: Float[Tensor, "P G"]) -> Float[Tensor, "P G"]:
    """Each reward minus the mean of the others of its group."""
    size = rewards.shape[1]
    return centred(rewards) * (size / (size - 1))

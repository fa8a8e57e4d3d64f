"""Leave-one-out advantage (RLOO), arXiv:2402.14740:  Aᵢ = rᵢ − mean of the other rewards of the group."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from contrastive_reasoning.advantages.base import by_group, centred, on_tokens
from contrastive_reasoning.rewards.base import Credit


@dataclass(frozen=True, kw_only=True)
class LeaveOneOut:
    """An unbiased baseline: the rollout is not part of its own mean.

    rᵢ − (Σr − rᵢ)/(G−1)  =  G/(G−1) · (rᵢ − mean(r)),  so it is the mean-centred advantage, rescaled.
    """

    def __call__(self, credit: Credit, mask: Bool[Tensor, "B T"], group_size: int) -> Float[Tensor, "B T"]:
        rewards = by_group(credit.outcome, group_size)
        return on_tokens(centred(rewards) * (group_size / (group_size - 1)), mask)

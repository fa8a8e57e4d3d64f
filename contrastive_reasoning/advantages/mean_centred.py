"""Mean-centred advantage:  Aᵢ = rᵢ − mean(r) over the group, in the reward's own units."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from contrastive_reasoning.advantages.group_relative import GroupRelative
from contrastive_reasoning.rewards.base import Credit


@dataclass(frozen=True, kw_only=True)
class MeanCentred:
    """``GroupRelative`` without the division: problems with rare successes weigh no more than others."""

    def __call__(self, credit: Credit, mask: Bool[Tensor, "B T"], group_size: int) -> Float[Tensor, "B T"]:
        return GroupRelative(normalise_std=False, epsilon=0.0)(credit, mask, group_size)

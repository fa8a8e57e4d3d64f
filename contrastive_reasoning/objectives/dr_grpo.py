"""Dr.GRPO, arXiv:2503.20783: GRPO with the loss divided by a constant length, which removes the length bias.

        loss = 1/(B L) Σ_i Σ_t ℓ_{i,t}            ℓ as in GRPO

The paper's other change is in the advantage: no division by the standard deviation (``MeanCentred``).
"""

from __future__ import annotations

from contrastive_reasoning.objectives.base import ConstantLength
from contrastive_reasoning.objectives.grpo import GRPO
from contrastive_reasoning.objectives.kl import KL, FullKL


def DrGRPO(*, clip_low: float, clip_high: float, length: int, kl_weight: float, kl: KL | FullKL | None) -> GRPO:
    """Returns GRPO with these settings; ``length`` is L, usually the token limit of a completion."""
    return GRPO(
        clip_low=clip_low,
        clip_high=clip_high,
        dual_clip=None,
        kl_weight=kl_weight,
        kl=kl,
        aggregation=ConstantLength(length=length),
    )

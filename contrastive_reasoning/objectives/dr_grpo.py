"""Dr.GRPO, arXiv:2503.20783: GRPO whose loss is divided by a constant length, so that length buys nothing.

        loss = 1/(B L) Σ_i Σ_t ℓ_{i,t}            ℓ as in GRPO

Its other half is an advantage: no division by the standard deviation (``MeanCentred``).
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from contrastive_reasoning.objectives.aggregate import ConstantLength
from contrastive_reasoning.objectives.base import ObjectiveInputs, ObjectiveOutputs
from contrastive_reasoning.objectives.grpo import GRPO
from contrastive_reasoning.objectives.kl import KL, FullKL


@dataclass(frozen=True, kw_only=True)
class DrGRPO:
    """The case of GRPO that ``as_grpo`` returns."""

    clip_low: float
    clip_high: float
    length: int
    """L, usually the most tokens a completion may have."""
    kl_weight: float
    kl: KL | FullKL | None

    def __post_init__(self) -> None:
        self.as_grpo()

    def as_grpo(self) -> GRPO:
        return GRPO(
            clip_low=self.clip_low,
            clip_high=self.clip_high,
            dual_clip=None,
            kl_weight=self.kl_weight,
            kl=self.kl,
            aggregation=ConstantLength(length=self.length),
        )

    def weights(self, mask: Bool[Tensor, "B T"], *, rows: float, tokens: float) -> Float[Tensor, "B T"]:
        return self.as_grpo().weights(mask, rows=rows, tokens=tokens)

    def __call__(self, inputs: ObjectiveInputs) -> ObjectiveOutputs:
        return self.as_grpo()(inputs)

"""DAPO's loss, arXiv:2503.14476: GRPO with a higher upper clip, every token weighing the same, and no KL.

        loss = 1/Σ|y_i| Σ_i Σ_t −min(ρ_t A_t, clip(ρ_t, 1 − low, 1 + high) A_t)            high > low

The upper bound is what keeps an unlikely token from becoming likely, so it is the one that is raised. The other parts
of the paper are elsewhere: dynamic sampling (``rollout=dynamic``), the overlong punishment (a reward).
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from contrastive_reasoning.objectives.aggregate import TokenMean
from contrastive_reasoning.objectives.base import ObjectiveInputs, ObjectiveOutputs
from contrastive_reasoning.objectives.grpo import GRPO


@dataclass(frozen=True, kw_only=True)
class DAPO:
    """The case of GRPO that ``as_grpo`` returns; a reference is ignored."""

    clip_low: float
    clip_high: float
    dual_clip: float | None
    """As in GRPO."""

    def __post_init__(self) -> None:
        self.as_grpo()

    def as_grpo(self) -> GRPO:
        return GRPO(
            clip_low=self.clip_low,
            clip_high=self.clip_high,
            dual_clip=self.dual_clip,
            kl_weight=0.0,
            kl=None,
            aggregation=TokenMean(),
        )

    def weights(self, mask: Bool[Tensor, "B T"], *, rows: float, tokens: float) -> Float[Tensor, "B T"]:
        return self.as_grpo().weights(mask, rows=rows, tokens=tokens)

    def __call__(self, inputs: ObjectiveInputs) -> ObjectiveOutputs:
        return self.as_grpo()(inputs)

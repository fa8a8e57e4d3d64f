"""GRPO's clipped surrogate, arXiv:2402.03300, with separate clips so that its variants are settings of it:

        ℓ_t = −min(ρ_t A_t, clip(ρ_t, 1 − low, 1 + high) A_t) + β · KL_t
        ρ_t = π(y_t) / π_old(y_t)

With ``dual_clip`` c (arXiv:1912.09729) the loss of a token with A < 0 is at most c·|A| at any ratio.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from contrastive_reasoning.objectives.base import (
    ObjectiveInputs,
    TokenLosses,
    TokenObjective,
    ratio_metrics,
    token_mean,
)
from contrastive_reasoning.objectives.ratio import check_clips, clipped_surrogate, token_log_ratio


@dataclass(frozen=True, kw_only=True)
class GRPO(TokenObjective):
    clip_low: float
    clip_high: float
    dual_clip: float | None
    """Upper bound of the loss of a token with a negative advantage, in units of |A|; None: no bound."""

    def __post_init__(self) -> None:
        check_clips(self.clip_low, self.clip_high)
        if self.dual_clip is not None and self.dual_clip <= 1:
            raise ValueError(f"dual_clip must be above 1 (or null), got {self.dual_clip}")
        super().__post_init__()

    def token_losses(self, inputs: ObjectiveInputs, advantages: Float[Tensor, "B T"]) -> TokenLosses:
        log_ratio = token_log_ratio(inputs.log_probs, inputs.old_log_probs, inputs.mask)
        ratio = log_ratio.exp()
        plain, clipped = clipped_surrogate(ratio, advantages, clip_low=self.clip_low, clip_high=self.clip_high)
        losses = torch.maximum(plain, clipped)
        metrics = ratio_metrics(ratio, log_ratio, clipped > plain, inputs)
        if self.dual_clip is not None:
            bounded = torch.where(advantages < 0, torch.minimum(losses, -self.dual_clip * advantages), losses)
            metrics["dual_clip_fraction"] = token_mean(bounded < losses, inputs)
            losses = bounded
        return losses, metrics

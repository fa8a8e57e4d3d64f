"""GSPO, arXiv:2507.18071: one importance ratio for the whole completion, clipped as a whole.

        ℓ_t = −min(s A_t, clip(s, 1 − low, 1 + high) A_t)            s = exp(1/|y| Σ_t log ρ_t)

A mean of log-ratios is much closer to 0 than its terms, so the clips are a few 1e-4. A clipped completion has no
gradient at all; in any other completion every token has one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from contrastive_reasoning.objectives.base import ObjectiveInputs, TokenLosses, TokenObjective, ratio_metrics
from contrastive_reasoning.objectives.ratio import check_clips, clipped_surrogate, masked_log_ratio, sequence_ratio


@dataclass(frozen=True, kw_only=True)
class GSPO(TokenObjective):
    """``ratio_mean``, ``ratio_max`` and ``clip_fraction`` describe s; each token counts with its completion's s."""

    clip_low: float
    clip_high: float

    def __post_init__(self) -> None:
        check_clips(self.clip_low, self.clip_high)
        super().__post_init__()

    def token_losses(self, inputs: ObjectiveInputs, advantages: Float[Tensor, "B T"]) -> TokenLosses:
        log_ratio = masked_log_ratio(inputs.log_probs, inputs.old_log_probs, inputs.mask)
        ratio = sequence_ratio(log_ratio, inputs.mask)
        plain, clipped = clipped_surrogate(ratio, advantages, clip_low=self.clip_low, clip_high=self.clip_high)
        return torch.maximum(plain, clipped), ratio_metrics(ratio, log_ratio, clipped > plain, inputs)

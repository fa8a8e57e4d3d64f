"""The surrogate without a clip: ℓ_t = −ρ_t A_t."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from contrastive_reasoning.objectives.base import ObjectiveInputs, TokenLosses, TokenObjective, ratio_metrics
from contrastive_reasoning.objectives.ratio import masked_log_ratio


@dataclass(frozen=True, kw_only=True)
class Unclipped(TokenObjective):
    """Importance sampling alone; ρ is limited to exp(10) so that it stays finite."""

    def token_losses(self, inputs: ObjectiveInputs, advantages: Float[Tensor, "B T"]) -> TokenLosses:
        log_ratio = masked_log_ratio(inputs.log_probs, inputs.old_log_probs, inputs.mask)
        ratio = log_ratio.clamp(max=10.0).exp()
        return -ratio * advantages, ratio_metrics(ratio, log_ratio, torch.zeros_like(inputs.mask), inputs)

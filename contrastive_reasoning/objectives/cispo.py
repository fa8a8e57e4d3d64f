"""CISPO (MiniMax-M1), arXiv:2506.13585: the importance weight is clipped, never the gradient.

        ℓ_t = −sg(min(ρ_t, 1 + high)) A_t log π(y_t)            sg: a constant for the gradient

This is REINFORCE with an importance weight for the sampling policy. A clip inside a min removes the gradient of the
clipped tokens, including rare ones that change a completion's course. Here every token keeps a gradient of bounded
weight.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from contrastive_reasoning.objectives.base import ObjectiveInputs, TokenLosses, TokenObjective, ratio_metrics
from contrastive_reasoning.objectives.ratio import check_clips, token_log_ratio


@dataclass(frozen=True, kw_only=True)
class CISPO(TokenObjective):
    """``clip_fraction`` is the share of tokens whose weight is clipped; the loss itself does not measure progress."""

    clip_low: float | None
    """The weight is at least 1 − clip_low; None: it may fall to 0."""
    clip_high: float
    """The weight is at most 1 + clip_high."""

    def __post_init__(self) -> None:
        check_clips(self.clip_low or 0.0, self.clip_high)
        super().__post_init__()

    def token_losses(self, inputs: ObjectiveInputs, advantages: Float[Tensor, "B T"]) -> TokenLosses:
        log_ratio = token_log_ratio(inputs.log_probs, inputs.old_log_probs, inputs.mask)
        ratio = log_ratio.detach().exp()
        weight = ratio.clamp(min=None if self.clip_low is None else 1 - self.clip_low, max=1 + self.clip_high)
        losses = -weight * advantages * torch.where(inputs.mask, inputs.log_probs, 0.0)
        return losses, ratio_metrics(ratio, log_ratio, weight != ratio, inputs)

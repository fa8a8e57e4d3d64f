"""Importance ratios:  ρ_t = π(y_t) / π_old(y_t), in log space until the last moment."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

LOG_RATIO_BOUND = 20.0
"""exp(20) ≈ 5e8 is finite in fp32 and bf16; beyond it the gradient is 0, as in verl's vanilla policy loss."""

SEQUENCE_LOG_RATIO_BOUND = 10.0
"""Of the mean over a completion, which is far smaller than its terms; as verl's GSPO loss."""


def masked_log_ratio(
    log_probs: Float[Tensor, "B T"], old_log_probs: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """log ρ of each token, however large; 0, without gradient, outside ``mask``, even over nan."""
    return torch.where(mask, log_probs, 0.0) - torch.where(mask, old_log_probs, 0.0)


def token_log_ratio(
    log_probs: Float[Tensor, "B T"], old_log_probs: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """log ρ of each token, within ±``LOG_RATIO_BOUND``; 0, without gradient, outside ``mask``, even over nan."""
    return masked_log_ratio(log_probs, old_log_probs, mask).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND)


def token_ratio(
    log_probs: Float[Tensor, "B T"], old_log_probs: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """ρ of each token; 1 outside ``mask``."""
    return token_log_ratio(log_probs, old_log_probs, mask).exp()


def sequence_ratio(log_ratio: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """exp of a completion's mean log-ratio, on each of its tokens; at most e^``SEQUENCE_LOG_RATIO_BOUND``.

    Every token's copy has the common value and the gradient of that token's own log-ratio:

        s_t = sg(s) · ρ_t / sg(ρ_t)            Σ_t A s_t  has the gradient of  |y| A s

    So an advantage that is the same on all tokens gives the gradient of the sequence's own formula, and one that
    differs from step to step stays on the tokens of its step, where a common factor would average it away.
    """
    mean = torch.where(mask, log_ratio, 0.0).sum(dim=1, keepdim=True) / mask.sum(dim=1, keepdim=True).clamp_min(1)
    own = log_ratio - log_ratio.detach()
    return (mean.detach() + own).clamp(max=SEQUENCE_LOG_RATIO_BOUND).exp()

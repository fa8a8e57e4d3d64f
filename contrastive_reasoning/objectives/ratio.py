"""Importance ratios:  ρ_t = π(y_t) / π_old(y_t), in log space until the last moment."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

LOG_RATIO_BOUND = 20.0
"""exp(20) ≈ 5e8 is finite in fp32 and bf16; beyond it the gradient is 0, as in verl's vanilla policy loss."""


def token_log_ratio(
    log_probs: Float[Tensor, "B T"], old_log_probs: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """log ρ of each token, within ±``LOG_RATIO_BOUND``; 0, without gradient, outside ``mask``, even over nan."""
    difference = torch.where(mask, log_probs, 0.0) - torch.where(mask, old_log_probs, 0.0)
    return difference.clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND)


def token_ratio(
    log_probs: Float[Tensor, "B T"], old_log_probs: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """ρ of each token; 1 outside ``mask``."""
    return token_log_ratio(log_probs, old_log_probs, mask).exp()

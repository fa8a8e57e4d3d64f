"""log Σ exp over the entries that count, without an epsilon."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def masked_logsumexp(
    logits: Float[Tensor, "A C"], mask: Bool[Tensor, "A C"], floor: Float[Tensor, " A"] | None = None
) -> Float[Tensor, " A"]:
    """logsumexp over the masked-in columns of each row, of log(Σ exp(sᵢⱼ) + exp(floorᵢ)) where a floor is given.

    Args:
        logits: s/τ of A anchors with C candidates.
        mask: the columns that are summed.
        floor: one more term of each sum, as a logit; None for an exact sum.

    Returns:
        One number per anchor; 0, with zero gradient, for a row whose mask is empty.
    """
    occupied = mask.any(dim=1)
    # A row of −inf alone has a NaN gradient, so an empty row is made finite before the sum and zeroed after it.
    filled = logits.masked_fill(~mask, float("-inf")).masked_fill(~occupied[:, None], 0.0)
    total = filled.logsumexp(dim=1)
    return (total if floor is None else torch.logaddexp(total, floor)).where(occupied, 0.0)


def masked_mean(logits: Float[Tensor, "A C"], mask: Bool[Tensor, "A C"]) -> Float[Tensor, " A"]:
    """Mean over the masked-in columns of each row; 0 for a row whose mask is empty."""
    return logits.where(mask, 0.0).sum(dim=1) / mask.sum(dim=1).clamp(min=1)

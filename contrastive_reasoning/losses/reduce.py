"""Reduction where the meaning is known: the mean over the entries that count."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor


def mean_over(values: Float[Tensor, "*shape"], selected: Bool[Tensor, "*shape"]) -> Float[Tensor, ""]:
    """Mean of ``values`` where ``selected``; a true zero that still backpropagates where nothing is.

    Args:
        values: any shape; entries that are not selected are ignored, infinities and NaN included.
        selected: which entries the mean is over.

    Returns:
        A scalar, 0 with zero gradient for an empty selection.
    """
    return values.where(selected, 0.0).sum() / selected.sum().clamp(min=1)

"""How far probabilities are from what happened: expected calibration error and Brier's score."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def expected_calibration_error(
    predicted: Float[Tensor, " N"], share: Float[Tensor, " N"], visits: Float[Tensor, " N"], *, bins: int
) -> float:
    """Σ_b w_b |mean predicted − mean share| over ``bins`` bins of equal width, w_b the bin's part of the visits.

    Args:
        predicted: probabilities, at least one.
        share: the successes among the visits.
        visits: the weight of each.
    """
    at = (predicted * bins).long().clamp(0, bins - 1)
    gaps = torch.zeros(bins, dtype=torch.float64).index_add(0, at, (visits * (predicted - share)).double())
    return (gaps.abs().sum() / visits.sum()).item()


def brier_score(predicted: Float[Tensor, " N"], share: Float[Tensor, " N"], visits: Float[Tensor, " N"]) -> float:
    """Mean over the visits of (p − success)², success being 0 or 1."""
    squared = share * (1 - predicted).square() + (1 - share) * predicted.square()
    return ((visits * squared).sum() / visits.sum()).item()

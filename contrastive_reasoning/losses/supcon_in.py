"""SupCon, mean inside the log, L_in of arXiv:2004.11362:  ℓᵢ = −log( 1/|P| Σₚ exp(sᵢₚ/τ) / Σₖ exp(sᵢₖ/τ) )."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor

from contrastive_reasoning.losses.per_anchor import PerAnchorLoss
from contrastive_reasoning.losses.soft_nearest_neighbour import soft_nearest_neighbour


def supcon_in(
    logits: Float[Tensor, "A C"],
    positive: Bool[Tensor, "A C"],
    candidate: Bool[Tensor, "A C"] | None = None,
    floor: Float[Tensor, " A"] | None = None,
) -> Float[Tensor, " A"]:
    """One loss per anchor: ``soft_nearest_neighbour`` + log |P|.

    Args:
        logits: s/τ of A anchors with C candidates.
        positive: the positives of each anchor.
        candidate: what the softmax runs over besides the positives; leave the anchor itself out here.
        floor: a logit that every sum of exponentials holds besides; None for exact sums.

    Returns:
        ℓ per anchor; 0, with zero gradient, for an anchor without positives.
    """
    log_count = positive.sum(dim=1).clamp(min=1).to(logits.dtype).log()
    return soft_nearest_neighbour(logits, positive, candidate, floor) + log_count


class SupConIn(PerAnchorLoss):
    """Mean of ``supcon_in`` over the anchors that have a positive."""

    formula = staticmethod(supcon_in)

"""SupCon, mean outside the log, L_out of arXiv:2004.11362:  ℓᵢ = −1/|P| Σₚ log( exp(sᵢₚ/τ) / Σₖ exp(sᵢₖ/τ) )."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor

from contrastive_reasoning.losses.masked import masked_logsumexp, masked_mean
from contrastive_reasoning.losses.per_anchor import PerAnchorLoss


def supcon(
    logits: Float[Tensor, "A C"],
    positive: Bool[Tensor, "A C"],
    candidate: Bool[Tensor, "A C"] | None = None,
    floor: Float[Tensor, " A"] | None = None,
) -> Float[Tensor, " A"]:
    """One loss per anchor, over any number of positives; with one of them it is InfoNCE.

    Args:
        logits: s/τ of A anchors with C candidates.
        positive: the positives of each anchor.
        candidate: what the softmax runs over besides the positives; leave the anchor itself out here.
        floor: a logit that every sum of exponentials holds besides; None for exact sums.

    Returns:
        ℓ per anchor; 0, with zero gradient, for an anchor without positives.
    """
    softmax_over = positive | candidate if candidate is not None else positive | True
    losses = masked_logsumexp(logits, softmax_over, floor) - masked_mean(logits, positive)
    return losses.where(positive.any(dim=1), 0.0)


class SupCon(PerAnchorLoss):
    """Mean of ``supcon`` over the anchors that have a positive."""

    formula = staticmethod(supcon)

"""Losses over any number of positives P of an anchor i, each with the softmax qᵢₚ = exp(sᵢₚ/τ) / Σₖ exp(sᵢₖ/τ):

        supcon                    ℓᵢ = −1/|P| Σₚ log qᵢₚ       mean outside the log, L_out of arXiv:2004.11362
        supcon_in                 ℓᵢ = −log( 1/|P| Σₚ qᵢₚ )    mean inside the log, L_in of the same
        soft_nearest_neighbour    ℓᵢ = −log Σₚ qᵢₚ             the sum inside the log, arXiv:1902.01889

With one positive, each of them is InfoNCE. They take the same arguments and return one loss per anchor:

    logits: s/τ of A anchors with C candidates.
    positive: the positives of each anchor.
    candidate: the columns of the softmax besides the positives; it should exclude the anchor itself.
    floor: an additional logit in every sum of exponentials; None for exact sums.
    returns: ℓ per anchor; 0, with zero gradient, for an anchor without positives.
"""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor

from contrastive_reasoning.losses.base import PerAnchorLoss
from contrastive_reasoning.losses.masked import masked_logsumexp, masked_mean


def supcon(
    logits: Float[Tensor, "A C"],
    positive: Bool[Tensor, "A C"],
    candidate: Bool[Tensor, "A C"] | None = None,
    floor: Float[Tensor, " A"] | None = None,
) -> Float[Tensor, " A"]:
    """Returns −1/|P| Σₚ log qᵢₚ per anchor."""
    softmax_over = positive | candidate if candidate is not None else positive | True
    losses = masked_logsumexp(logits, softmax_over, floor) - masked_mean(logits, positive)
    return losses.where(positive.any(dim=1), 0.0)


def soft_nearest_neighbour(
    logits: Float[Tensor, "A C"],
    positive: Bool[Tensor, "A C"],
    candidate: Bool[Tensor, "A C"] | None = None,
    floor: Float[Tensor, " A"] | None = None,
) -> Float[Tensor, " A"]:
    """Returns −log Σₚ qᵢₚ per anchor."""
    softmax_over = positive | candidate if candidate is not None else positive | True
    losses = masked_logsumexp(logits, softmax_over, floor) - masked_logsumexp(logits, positive, floor)
    return losses.where(positive.any(dim=1), 0.0)


def supcon_in(
    logits: Float[Tensor, "A C"],
    positive: Bool[Tensor, "A C"],
    candidate: Bool[Tensor, "A C"] | None = None,
    floor: Float[Tensor, " A"] | None = None,
) -> Float[Tensor, " A"]:
    """Returns −log( 1/|P| Σₚ qᵢₚ ) per anchor: ``soft_nearest_neighbour`` + log |P|."""
    log_count = positive.sum(dim=1).clamp(min=1).to(logits.dtype).log()
    return soft_nearest_neighbour(logits, positive, candidate, floor) + log_count


class SupCon(PerAnchorLoss):
    """Mean of ``supcon`` over the anchors that have a positive."""

    formula = staticmethod(supcon)


class SoftNearestNeighbour(PerAnchorLoss):
    """Mean of ``soft_nearest_neighbour`` over the anchors that have a positive."""

    formula = staticmethod(soft_nearest_neighbour)


class SupConIn(PerAnchorLoss):
    """Mean of ``supcon_in`` over the anchors that have a positive."""

    formula = staticmethod(supcon_in)

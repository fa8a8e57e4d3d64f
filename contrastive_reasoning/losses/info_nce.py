"""InfoNCE over candidates, Eq. (4) of arXiv:1807.03748:  ℓᵢ = log Σⱼ exp(sᵢⱼ/τ) − sᵢₚ/τ.

Forward: the softmax of each anchor runs over the goals. That leaves a free constant per anchor, so the scores of two
different states for one goal are not comparable in principle; the backward form has no such freedom there.
"""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor

from contrastive_reasoning.losses.per_anchor import PerAnchorLoss
from contrastive_reasoning.losses.supcon import supcon


def info_nce(
    logits: Float[Tensor, "A C"],
    positive: Bool[Tensor, "A C"],
    candidate: Bool[Tensor, "A C"] | None = None,
    floor: Float[Tensor, " A"] | None = None,
) -> Float[Tensor, " A"]:
    """One loss per anchor: ``supcon`` with one positive a row.

    Args:
        logits: s/τ of A anchors with C candidates.
        positive: one True per row, or none; with several the loss is the mean over them.
        candidate: what the softmax runs over besides the positive; None for all columns.
        floor: a logit that the sum of exponentials holds besides; None for an exact sum.

    Returns:
        ℓ per anchor; exactly 0, with zero gradient, for an anchor that has no positive.
    """
    return supcon(logits, positive, candidate, floor)


class InfoNCE(PerAnchorLoss):
    """Mean of ``info_nce`` over the anchors that have a positive."""

    formula = staticmethod(info_nce)

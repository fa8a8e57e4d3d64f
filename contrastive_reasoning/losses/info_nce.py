"""InfoNCE over candidates, Eq. (4) of arXiv:1807.03748:  ℓᵢ = log Σⱼ exp(sᵢⱼ/τ) − sᵢₚ/τ.

Forward: the softmax of each anchor runs over the goals. That leaves a free constant per anchor, so the scores of two
different states for one goal are not comparable in principle; the backward form has no such freedom there.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from contrastive_reasoning.losses.base import require_positive
from contrastive_reasoning.losses.masked import masked_logsumexp
from contrastive_reasoning.losses.reduce import mean_over


def info_nce(
    logits: Float[Tensor, "A C"], positive: Bool[Tensor, "A C"], candidate: Bool[Tensor, "A C"] | None = None
) -> Float[Tensor, " A"]:
    """One loss per anchor.

    Args:
        logits: s/τ of A anchors with C candidates.
        positive: at most one True per row.
        candidate: what the softmax runs over besides the positive; None for all columns.

    Returns:
        ℓ per anchor; exactly 0, with zero gradient, for an anchor that has no positive.
    """
    softmax_over = positive | candidate if candidate is not None else positive | True
    at_positive = logits.where(positive, 0.0).sum(dim=1)
    return (masked_logsumexp(logits, softmax_over) - at_positive).where(positive.any(dim=1), 0.0)


@dataclass(frozen=True, kw_only=True)
class InfoNCE:
    """Mean of ``info_nce`` over the anchors that have a positive."""

    temperature: float
    """τ > 0; the scores are divided by it."""

    def __post_init__(self) -> None:
        require_positive("InfoNCE", temperature=self.temperature)

    def __call__(
        self, scores: Float[Tensor, "A C"], positive: Bool[Tensor, "A C"], candidate: Bool[Tensor, "A C"]
    ) -> Float[Tensor, ""]:
        return mean_over(info_nce(scores / self.temperature, positive, candidate), positive.any(dim=1))

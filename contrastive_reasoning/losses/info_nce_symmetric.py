"""Symmetric InfoNCE: the mean of the forward (over goals) and the backward (over anchors) loss."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from contrastive_reasoning.losses.base import require_positive
from contrastive_reasoning.losses.info_nce import info_nce
from contrastive_reasoning.losses.info_nce_backward import info_nce_backward
from contrastive_reasoning.losses.reduce import mean_over


def info_nce_symmetric(
    logits: Float[Tensor, "A C"], positive: Bool[Tensor, "A C"], candidate: Bool[Tensor, "A C"] | None = None
) -> Float[Tensor, ""]:
    """Half the mean over anchors plus half the mean over goals; reduced, for the two halves have different axes.

    Args:
        logits: s/τ of A anchors with C candidates.
        positive: one True per row and per column, or none; with several the mean over them.
        candidate: the pairs that count besides the positives; None for all.

    Returns:
        A scalar; each half is over the rows (columns) that have a positive.
    """
    forward = mean_over(info_nce(logits, positive, candidate), positive.any(dim=1))
    backward = mean_over(info_nce_backward(logits, positive, candidate), positive.any(dim=0))
    return (forward + backward) / 2


@dataclass(frozen=True, kw_only=True)
class SymmetricInfoNCE:
    """``info_nce_symmetric`` at a temperature."""

    temperature: float
    """τ > 0; the scores are divided by it."""

    def __post_init__(self) -> None:
        require_positive("SymmetricInfoNCE", temperature=self.temperature)

    def __call__(
        self, scores: Float[Tensor, "A C"], positive: Bool[Tensor, "A C"], candidate: Bool[Tensor, "A C"]
    ) -> Float[Tensor, ""]:
        return info_nce_symmetric(scores / self.temperature, positive, candidate)

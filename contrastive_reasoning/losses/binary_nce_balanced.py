"""Balanced binary NCE: mean over the positive pairs plus mean over the negative ones, whatever their numbers.

The poster writes one negative per positive; with all pairs of a batch as candidates this keeps that balance.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from contrastive_reasoning.losses.base import require_positive
from contrastive_reasoning.losses.binary_nce import binary_nce
from contrastive_reasoning.losses.reduce import mean_over


def binary_nce_balanced(
    logits: Float[Tensor, "A C"], positive: Bool[Tensor, "A C"], candidate: Bool[Tensor, "A C"] | None = None
) -> Float[Tensor, ""]:
    """Mean of ℓ⁺ plus mean of ℓ⁻; reduced, for the balance is the reduction.

    Args:
        logits: s/τ of A anchors with C candidates.
        positive: any number of positive pairs.
        candidate: the pairs that count besides the positives; None for all.

    Returns:
        A scalar; a side without pairs adds 0.
    """
    losses = binary_nce(logits, positive, candidate)
    negative = ~positive if candidate is None else candidate & ~positive
    return mean_over(losses, positive) + mean_over(losses, negative)


@dataclass(frozen=True, kw_only=True)
class BalancedBinaryNCE:
    """``binary_nce_balanced`` at a temperature."""

    temperature: float
    """τ > 0; the scores are divided by it."""

    def __post_init__(self) -> None:
        require_positive("BalancedBinaryNCE", temperature=self.temperature)

    def __call__(
        self, scores: Float[Tensor, "A C"], positive: Bool[Tensor, "A C"], candidate: Bool[Tensor, "A C"]
    ) -> Float[Tensor, ""]:
        return binary_nce_balanced(scores / self.temperature, positive, candidate)

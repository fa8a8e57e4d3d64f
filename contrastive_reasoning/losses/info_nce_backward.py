"""InfoNCE over anchors:  ℓⱼ = log Σᵢ exp(sᵢⱼ/τ) − sₚⱼ/τ, the softmax of each goal over the state–actions.

States compete for one goal here, which is how a reward uses the critic; a state that reaches nothing (a dead end) takes
part as a negative of the goal column it is a candidate of.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from contrastive_reasoning.losses.base import require_positive
from contrastive_reasoning.losses.info_nce import info_nce
from contrastive_reasoning.losses.reduce import mean_over


def info_nce_backward(
    logits: Float[Tensor, "A C"], positive: Bool[Tensor, "A C"], candidate: Bool[Tensor, "A C"] | None = None
) -> Float[Tensor, " C"]:
    """One loss per goal: ``info_nce`` of the transposed pairs.

    Args:
        logits: s/τ of A anchors with C candidates.
        positive: one True per column, or none; with several the loss is the mean over them.
        candidate: what the softmax runs over besides the positive; None for all rows.

    Returns:
        ℓ per goal; exactly 0, with zero gradient, for a goal that no anchor reached.
    """
    return info_nce(logits.T, positive.T, None if candidate is None else candidate.T)


@dataclass(frozen=True, kw_only=True)
class BackwardInfoNCE:
    """Mean of ``info_nce_backward`` over the goals that have a positive."""

    temperature: float
    """τ > 0; the scores are divided by it."""

    def __post_init__(self) -> None:
        require_positive("BackwardInfoNCE", temperature=self.temperature)

    def __call__(
        self, scores: Float[Tensor, "A C"], positive: Bool[Tensor, "A C"], candidate: Bool[Tensor, "A C"]
    ) -> Float[Tensor, ""]:
        return mean_over(info_nce_backward(scores / self.temperature, positive, candidate), positive.any(dim=0))

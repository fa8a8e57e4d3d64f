"""Logsumexp penalty:  (log Σⱼ exp(sᵢⱼ/τ))² per anchor; it fixes the constant that a softmax leaves free.

Used with contrastive reinforcement learning since arXiv:2206.07568.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from contrastive_reasoning.losses.base import ContrastiveLoss
from contrastive_reasoning.losses.masked import masked_logsumexp, mean_over
from contrastive_reasoning.ranges import above, at_least


def logsumexp_penalty(
    logits: Float[Tensor, "A C"], candidate: Bool[Tensor, "A C"] | None = None
) -> Float[Tensor, " A"]:
    """Returns the squared logsumexp per anchor over its candidates or all; 0, with zero gradient, without any."""
    lse = logits.logsumexp(dim=1) if candidate is None else masked_logsumexp(logits, candidate)
    return lse.square()


@dataclass(frozen=True, kw_only=True)
class WithPenalty:
    """A loss plus ``weight`` times the mean logsumexp penalty over the anchors that have candidates."""

    loss: ContrastiveLoss
    temperature: float
    """τ > 0 of the penalty's logits; in YAML the temperature of ``loss`` is interpolated from it."""
    weight: float
    """≥ 0."""

    def __post_init__(self) -> None:
        above(0, temperature=self.temperature)
        at_least(0, weight=self.weight)

    def __call__(
        self, scores: Float[Tensor, "A C"], positive: Bool[Tensor, "A C"], candidate: Bool[Tensor, "A C"]
    ) -> Float[Tensor, ""]:
        counts = positive | candidate
        penalty = mean_over(logsumexp_penalty(scores / self.temperature, counts), counts.any(dim=1))
        return self.loss(scores, positive, candidate) + self.weight * penalty

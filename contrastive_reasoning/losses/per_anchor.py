"""The class form of losses with one number per anchor: s/τ, the formula, the mean where there is a positive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Bool, Float
from torch import Tensor

from contrastive_reasoning.losses.base import require_positive
from contrastive_reasoning.losses.reduce import mean_over


@dataclass(frozen=True, kw_only=True)
class PerAnchorLoss:
    """Mean of ``formula`` over the anchors that have a positive; a true zero where none has."""

    temperature: float
    """τ > 0; the scores are divided by it."""

    formula: ClassVar[Callable[[Tensor, Tensor, Tensor], Tensor]]
    """(logits, positive, candidate), each (A,C), to ℓ per anchor (A,)."""

    def __post_init__(self) -> None:
        require_positive(type(self).__name__, temperature=self.temperature)

    def __call__(
        self, scores: Float[Tensor, "A C"], positive: Bool[Tensor, "A C"], candidate: Bool[Tensor, "A C"]
    ) -> Float[Tensor, ""]:
        losses = type(self).formula(scores / self.temperature, positive, candidate)
        return mean_over(losses, positive.any(dim=1))

"""The interface of contrastive losses: maps scores of anchors with candidates and masks of the pairs to one number."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from jaxtyping import Bool, Float
from torch import Tensor

from contrastive_reasoning.losses.masked import mean_over
from contrastive_reasoning.ranges import above


@runtime_checkable
class ContrastiveLoss(Protocol):
    """The class form of a loss: holds the temperature, divides by it, and reduces over the pairs that count."""

    @property
    def temperature(self) -> float: ...

    def __call__(
        self, scores: Float[Tensor, "A C"], positive: Bool[Tensor, "A C"], candidate: Bool[Tensor, "A C"]
    ) -> Float[Tensor, ""]: ...


@dataclass(frozen=True, kw_only=True)
class LossAtTemperature(ABC):
    """The class form of a formula: applies ``reduce`` to s/τ."""

    temperature: float
    """τ > 0; the scores are divided by it."""

    def __post_init__(self) -> None:
        above(0, temperature=self.temperature)

    def __call__(
        self, scores: Float[Tensor, "A C"], positive: Bool[Tensor, "A C"], candidate: Bool[Tensor, "A C"]
    ) -> Float[Tensor, ""]:
        return self.reduce(scores / self.temperature, positive, candidate)

    @staticmethod
    @abstractmethod
    def reduce(logits: Tensor, positive: Tensor, candidate: Tensor) -> Tensor:
        """Returns the formula of logits and masks, each (A,C), reduced over the entries that count."""


class PerAnchorLoss(LossAtTemperature):
    """Mean of ``formula`` over the anchors that have a positive; a zero that still backpropagates if none has."""

    formula: ClassVar[Callable[[Tensor, Tensor, Tensor], Tensor]]
    """(logits, positive, candidate), each (A,C) → ℓ per anchor (A,)."""

    @classmethod
    def reduce(cls, logits: Tensor, positive: Tensor, candidate: Tensor) -> Tensor:
        return mean_over(cls.formula(logits, positive, candidate), positive.any(dim=1))

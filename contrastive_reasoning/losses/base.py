"""What every contrastive loss is: logits of anchors with candidates, and which pairs are what, to one number."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from jaxtyping import Bool, Float
from torch import Tensor


@runtime_checkable
class ContrastiveLoss(Protocol):
    """The class form of a loss: holds the temperature, divides by it, and reduces over the pairs it is about."""

    @property
    def temperature(self) -> float: ...

    def __call__(
        self, scores: Float[Tensor, "A C"], positive: Bool[Tensor, "A C"], candidate: Bool[Tensor, "A C"]
    ) -> Float[Tensor, ""]: ...


def require_positive(owner: str, **values: float) -> None:
    """Refuse a number that must be above zero.

    Raises:
        ValueError: a value is not > 0; names the owner, the argument and the value.
    """
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"{owner}: {name} must be above 0, got {value}")

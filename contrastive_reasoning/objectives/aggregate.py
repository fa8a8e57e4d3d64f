"""From one loss per token to one number, as weights on the tokens:  loss = Σ_{i,t} w_{i,t} ℓ_{i,t}.

Weights are made from the sizes of the whole update (``rows`` rollouts, ``tokens`` tokens), never from those of the rows
at hand: a sum over micro-batches is then the sum over the batch, and no split changes the gradient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from jaxtyping import Bool, Float
from torch import Tensor


@runtime_checkable
class Aggregation(Protocol):
    def weights(self, mask: Bool[Tensor, "B T"], *, rows: float, tokens: float) -> Float[Tensor, "B T"]:
        """The weight of each token of these rows in the loss of the whole update; 0 outside ``mask``.

        Args:
            mask: the tokens of the rows at hand.
            rows: rollouts of the whole update that have a token.
            tokens: completion tokens in the whole update.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class TokenMean:
    """Every token weighs the same (DAPO, arXiv:2503.14476):  w = 1 / Σ_j |y_j|."""

    def weights(self, mask: Bool[Tensor, "B T"], *, rows: float, tokens: float) -> Float[Tensor, "B T"]:
        return mask.double() / max(tokens, 1)


@dataclass(frozen=True, kw_only=True)
class SeqMeanTokenMean:
    """Every rollout weighs the same, its tokens share it (GRPO, arXiv:2402.03300):  w = 1 / (B |y_i|)."""

    def weights(self, mask: Bool[Tensor, "B T"], *, rows: float, tokens: float) -> Float[Tensor, "B T"]:
        return mask.double() / (rows * mask.sum(dim=1, keepdim=True).clamp_min(1))


@dataclass(frozen=True, kw_only=True)
class SeqMeanTokenSum:
    """The mean over rollouts of their summed token losses:  w = 1 / B."""

    def weights(self, mask: Bool[Tensor, "B T"], *, rows: float, tokens: float) -> Float[Tensor, "B T"]:
        return mask.double() / rows


@dataclass(frozen=True, kw_only=True)
class ConstantLength:
    """``SeqMeanTokenSum`` over a constant: length buys nothing (Dr.GRPO, arXiv:2503.20783):  w = 1 / (B L)."""

    length: int
    """L, usually the most tokens a completion may have."""

    def __post_init__(self) -> None:
        if self.length < 1:
            raise ValueError(f"length must be at least 1, got {self.length}")

    def weights(self, mask: Bool[Tensor, "B T"], *, rows: float, tokens: float) -> Float[Tensor, "B T"]:
        return mask.double() / (rows * self.length)

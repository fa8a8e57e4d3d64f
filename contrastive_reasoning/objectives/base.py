"""The inputs and outputs of policy objectives, and their aggregation to one number, which losses and KL share:

        loss = Σ_{i,t} w_{i,t} ℓ_{i,t} + β Σ_{i,t} w_{i,t} KL_{i,t}

Weights are computed from the sizes of the whole update (``rows`` rollouts, ``tokens`` tokens), never from those of a
micro-batch. A sum over micro-batches then equals the sum over the batch, and no split changes the gradient. Metrics
that are means over tokens add up over micro-batches; maxima are compared (``join_metrics``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from contrastive_reasoning.objectives.kl import KL, FullKL
from contrastive_reasoning.ranges import at_least


@dataclass(frozen=True, kw_only=True)
class ObjectiveInputs:
    """Per-token quantities of B rollouts; values outside ``mask`` are ignored, even nan."""

    log_probs: Float[Tensor, "B T"]
    """log π of each completion token, with gradient. The next two are those of the old policy and of the reference."""
    old_log_probs: Float[Tensor, "B T"]
    ref_log_probs: Float[Tensor, "B T"] | None
    advantages: Float[Tensor, "B T"]
    mask: Bool[Tensor, "B T"]
    weights: Float[Tensor, "B T"] | None = None
    """Each token's weight in the loss, from the aggregation over the *whole* update, so that the split into
    micro-batches does not change the gradient; None: these rows are the whole update."""
    full_kl: Float[Tensor, "B T"] | None = None
    """KL(π ‖ reference) over the whole vocabulary at each token, with gradient; only ``FullKL`` reads it."""
    tokens: float | None = None
    """The completion tokens of the whole update, so that metrics add up over micro-batches; None: those of ``mask``."""


@dataclass(frozen=True, kw_only=True)
class ObjectiveOutputs:
    loss: Float[Tensor, ""]
    metrics: Mapping[str, Float[Tensor, ""]] = field(default_factory=dict)
    """Detached diagnostics (``clip_fraction``, ``kl``, ``ratio_mean``), for ``join_metrics``."""


@runtime_checkable
class Objective(Protocol):
    """A policy loss. Without a reference, rollouts whose advantages are all 0 are not passed to it.

    So a term that does not vanish with the advantage, such as an entropy bonus, would lack these rollouts.
    """

    def __call__(self, inputs: ObjectiveInputs) -> ObjectiveOutputs: ...

    def weights(self, mask: Bool[Tensor, "B T"], *, rows: float, tokens: float) -> Float[Tensor, "B T"]:
        """Returns the weights of the objective's aggregation."""
        ...


def token_mean(values: Tensor, inputs: ObjectiveInputs) -> Float[Tensor, ""]:
    """Returns the contribution of these rows to the mean of ``values`` (B,T) over the tokens of the whole update."""
    tokens = float(inputs.mask.sum()) if inputs.tokens is None else inputs.tokens
    return torch.where(inputs.mask, values.detach().double(), 0.0).sum() / max(tokens, 1)


def token_max(values: Tensor, inputs: ObjectiveInputs) -> Float[Tensor, ""]:
    """Returns the largest of ``values`` (B,T) on the tokens of these rows; 0 without tokens."""
    kept = values.detach().double()[inputs.mask]
    return kept.max() if kept.numel() else values.new_zeros((), dtype=torch.float64)


def ratio_metrics(
    ratio: Tensor, log_ratio: Tensor, clipped: Tensor, inputs: ObjectiveInputs
) -> dict[str, Float[Tensor, ""]]:
    """Returns the share of clipped tokens, mean and maximum of the unclipped ratio (B,T), and KL(π_old ‖ π)."""
    return {
        "clip_fraction": token_mean(clipped, inputs),
        "ratio_mean": token_mean(ratio, inputs),
        "ratio_max": token_max(ratio, inputs),
        "approx_kl": token_mean(-log_ratio, inputs),
    }


def join_metrics(parts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Combines the metrics of micro-batches to those of their update: ``*_max`` by maximum, all others by sum."""
    columns = {name: torch.stack([part[name] for part in parts]) for name in parts[0]}
    return {name: column.max() if name.endswith("_max") else column.sum() for name, column in columns.items()}


@runtime_checkable
class Aggregation(Protocol):
    def weights(self, mask: Bool[Tensor, "B T"], *, rows: float, tokens: float) -> Float[Tensor, "B T"]:
        """Returns the weight of each token of these rows; 0 outside ``mask``.

        ``rows`` counts the rollouts of the whole update that have a token, ``tokens`` its completion tokens.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class TokenMean:
    """All tokens have the same weight (DAPO, arXiv:2503.14476):  w = 1 / Σ_j |y_j|."""

    def weights(self, mask: Bool[Tensor, "B T"], *, rows: float, tokens: float) -> Float[Tensor, "B T"]:
        return mask.double() / max(tokens, 1)


@dataclass(frozen=True, kw_only=True)
class SeqMeanTokenMean:
    """All rollouts have the same weight, shared by their tokens (GRPO, arXiv:2402.03300):  w = 1 / (B |y_i|)."""

    def weights(self, mask: Bool[Tensor, "B T"], *, rows: float, tokens: float) -> Float[Tensor, "B T"]:
        return mask.double() / (rows * mask.sum(dim=1, keepdim=True).clamp_min(1))


@dataclass(frozen=True, kw_only=True)
class SeqMeanTokenSum:
    """The mean over rollouts of their summed token losses:  w = 1 / B."""

    def weights(self, mask: Bool[Tensor, "B T"], *, rows: float, tokens: float) -> Float[Tensor, "B T"]:
        return mask.double() / rows


@dataclass(frozen=True, kw_only=True)
class ConstantLength:
    """``SeqMeanTokenSum`` over a constant, without a length bias (Dr.GRPO, arXiv:2503.20783):  w = 1 / (B L)."""

    length: int
    """L, usually the token limit of a completion."""

    def __post_init__(self) -> None:
        at_least(1, length=self.length)

    def weights(self, mask: Bool[Tensor, "B T"], *, rows: float, tokens: float) -> Float[Tensor, "B T"]:
        return mask.double() / (rows * self.length)


TokenLosses = tuple[Float[Tensor, "B T"], dict[str, Float[Tensor, ""]]]


@dataclass(frozen=True, kw_only=True)
class TokenObjective(ABC):
    """An objective with a loss per token and a KL term. Subclasses are frozen dataclasses with ``token_losses``.

    Raises ValueError for a ``kl_weight`` that is negative, or positive without ``kl``.
    """

    kl_weight: float
    """β ≥ 0: a negative weight would push the policy away from the reference."""
    kl: KL | FullKL | None
    aggregation: Aggregation

    def __post_init__(self) -> None:
        at_least(0, kl_weight=self.kl_weight)
        if self.kl_weight > 0 and self.kl is None:
            raise ValueError(
                f"objective.kl_weight={self.kl_weight} weighs no KL term, because objective.kl is null: set "
                "objective.kl_weight=0, or an estimator, objective.kl={_target_:contrastive_reasoning.objectives.K2}"
            )

    @abstractmethod
    def token_losses(self, inputs: ObjectiveInputs, advantages: Float[Tensor, "B T"]) -> TokenLosses:
        """Returns ℓ of each token, 0 outside the mask, and the metrics; ``advantages`` are 0 outside the mask."""

    def weights(self, mask: Bool[Tensor, "B T"], *, rows: float, tokens: float) -> Float[Tensor, "B T"]:
        return self.aggregation.weights(mask, rows=rows, tokens=tokens)

    def __call__(self, inputs: ObjectiveInputs) -> ObjectiveOutputs:
        losses, metrics = self.token_losses(inputs, torch.where(inputs.mask, inputs.advantages, 0.0))
        loss = aggregate(losses, inputs, self.aggregation)
        divergence = kl_per_token(self.kl, inputs)
        if divergence is not None:
            loss = loss + self.kl_weight * aggregate(divergence, inputs, self.aggregation)
            metrics = {**metrics, "kl": token_mean(divergence, inputs)}
        return ObjectiveOutputs(loss=loss, metrics=metrics)


def aggregate(values: Float[Tensor, "B T"], inputs: ObjectiveInputs, aggregation: Aggregation) -> Float[Tensor, ""]:
    """Returns Σ w v with the weights of the whole update, or without them as if these rows were the whole update."""
    weights = inputs.weights
    if weights is None:
        rows, tokens = float(inputs.mask.any(dim=1).sum()), float(inputs.mask.sum())
        weights = aggregation.weights(inputs.mask, rows=max(rows, 1.0), tokens=tokens)
    return (weights.to(values.dtype) * values).sum()


def kl_per_token(kl: KL | FullKL | None, inputs: ObjectiveInputs) -> Float[Tensor, "B T"] | None:
    """Returns the KL to the reference, 0 outside the mask; None (no KL term) without an estimator or a reference.

    Raises ValueError for a ``FullKL`` if only the log-probs of the reference are given.
    """
    if isinstance(kl, FullKL):
        if inputs.full_kl is None and inputs.ref_log_probs is not None:
            raise ValueError("a KL over the whole vocabulary needs full_kl: log-probs of the tokens do not give it")
        return None if inputs.full_kl is None else torch.where(inputs.mask, inputs.full_kl, 0.0)
    if kl is None or inputs.ref_log_probs is None:
        return None
    # masked before the estimator: a gradient of 0 times the derivative of exp at nan would be nan
    return kl(torch.where(inputs.mask, inputs.log_probs, 0.0), torch.where(inputs.mask, inputs.ref_log_probs, 0.0))


def needs_full_kl(objective: Objective) -> bool:
    """Returns whether the objective has a KL term over the whole vocabulary, so that its inputs need ``full_kl``."""
    return isinstance(getattr(objective, "kl", None), FullKL)

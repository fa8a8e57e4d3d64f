"""What every policy objective takes and returns, and how it becomes one number, the same for losses and KL:

        loss = Σ_{i,t} w_{i,t} ℓ_{i,t} + β Σ_{i,t} w_{i,t} KL_{i,t}

Weights are made from the sizes of the whole update (``rows`` rollouts, ``tokens`` tokens), never from those of the rows
at hand: a sum over micro-batches is then the sum over the batch, and no split changes the gradient. Metrics that are
means over tokens add up over micro-batches, maxima are compared (``join_metrics``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from contrastive_reasoning.objectives.kl import KL, FullKL


@dataclass(frozen=True, kw_only=True)
class ObjectiveInputs:
    """Per-token quantities of B rollouts; what lies outside ``mask`` is ignored, whatever it holds."""

    log_probs: Float[Tensor, "B T"]
    """log π of each completion token, with gradient; then the same under the policy that sampled, and the reference."""
    old_log_probs: Float[Tensor, "B T"]
    ref_log_probs: Float[Tensor, "B T"] | None
    advantages: Float[Tensor, "B T"]
    mask: Bool[Tensor, "B T"]
    weights: Float[Tensor, "B T"] | None = None
    """Each token's weight in the loss, from the aggregation over the *whole* update, so that the split into
    micro-batches cannot change the gradient; None: these rows are the whole update."""
    full_kl: Float[Tensor, "B T"] | None = None
    """KL(π ‖ reference) over the whole vocabulary at each token, with gradient; only ``FullKL`` reads it."""
    tokens: float | None = None
    """Completion tokens of the whole update, so that metrics add up over micro-batches; None: those of ``mask``."""


@dataclass(frozen=True, kw_only=True)
class ObjectiveOutputs:
    loss: Float[Tensor, ""]
    metrics: Mapping[str, Float[Tensor, ""]] = field(default_factory=dict)
    """Detached diagnostics (``clip_fraction``, ``kl``, ``ratio_mean``), for ``join_metrics``."""


@runtime_checkable
class Objective(Protocol):
    def __call__(self, inputs: ObjectiveInputs) -> ObjectiveOutputs: ...

    def weights(self, mask: Bool[Tensor, "B T"], *, rows: float, tokens: float) -> Float[Tensor, "B T"]:
        """Those of its aggregation."""
        ...


def token_mean(values: Tensor, inputs: ObjectiveInputs) -> Float[Tensor, ""]:
    """The share of these rows in the mean of ``values`` (B,T) over the tokens of the whole update."""
    tokens = float(inputs.mask.sum()) if inputs.tokens is None else inputs.tokens
    return torch.where(inputs.mask, values.detach().double(), 0.0).sum() / max(tokens, 1)


def token_max(values: Tensor, inputs: ObjectiveInputs) -> Float[Tensor, ""]:
    """The largest of ``values`` (B,T) on a token of these rows; 0 where they have none."""
    kept = values.detach().double()[inputs.mask]
    return kept.max() if kept.numel() else values.new_zeros((), dtype=torch.float64)


def ratio_metrics(
    ratio: Tensor, log_ratio: Tensor, clipped: Tensor, inputs: ObjectiveInputs
) -> dict[str, Float[Tensor, ""]]:
    """How many tokens the clip acts on, how large ratios (B,T) are before it, and KL(π_old ‖ π) from log ρ (B,T)."""
    return {
        "clip_fraction": token_mean(clipped, inputs),
        "ratio_mean": token_mean(ratio, inputs),
        "ratio_max": token_max(ratio, inputs),
        "approx_kl": token_mean(-log_ratio, inputs),
    }


def join_metrics(parts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The metrics of micro-batches as those of their update: ``*_max`` by the largest, all others by the sum."""
    columns = {name: torch.stack([part[name] for part in parts]) for name in parts[0]}
    return {name: column.max() if name.endswith("_max") else column.sum() for name, column in columns.items()}


@runtime_checkable
class Aggregation(Protocol):
    def weights(self, mask: Bool[Tensor, "B T"], *, rows: float, tokens: float) -> Float[Tensor, "B T"]:
        """The weight of each token of the rows at hand; 0 outside ``mask``.

        ``rows`` are the rollouts of the whole update that have a token, ``tokens`` its completion tokens.
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


def total(
    losses: Float[Tensor, "B T"],
    inputs: ObjectiveInputs,
    *,
    aggregation: Aggregation,
    kl: KL | FullKL | None,
    kl_weight: float,
    metrics: Mapping[str, Float[Tensor, ""]],
) -> ObjectiveOutputs:
    """The objective's outputs; ``metrics`` gain ``kl`` where there is a KL term."""
    loss = aggregated(losses, inputs, aggregation)
    divergence = kl_per_token(kl, inputs)
    if divergence is None:
        return ObjectiveOutputs(loss=loss, metrics=metrics)
    loss = loss + kl_weight * aggregated(divergence, inputs, aggregation)
    return ObjectiveOutputs(loss=loss, metrics={**metrics, "kl": token_mean(divergence, inputs)})


def aggregated(values: Float[Tensor, "B T"], inputs: ObjectiveInputs, aggregation: Aggregation) -> Float[Tensor, ""]:
    """Σ w v, with the weights of the whole update where they are known, else as if these rows were all of it."""
    weights = inputs.weights
    if weights is None:
        rows, tokens = float(inputs.mask.any(dim=1).sum()), float(inputs.mask.sum())
        weights = aggregation.weights(inputs.mask, rows=max(rows, 1.0), tokens=tokens)
    return (weights.to(values.dtype) * values).sum()


def kl_per_token(kl: KL | FullKL | None, inputs: ObjectiveInputs) -> Float[Tensor, "B T"] | None:
    """The KL to the reference, 0 outside the mask; None without an estimator or a reference: there is no KL term.

    Raises ValueError for a ``FullKL`` where only the log-probs of the reference were given.
    """
    if isinstance(kl, FullKL):
        if inputs.full_kl is None and inputs.ref_log_probs is not None:
            raise ValueError("a KL over the whole vocabulary needs full_kl: log-probs of the tokens do not give it")
        return None if inputs.full_kl is None else torch.where(inputs.mask, inputs.full_kl, 0.0)
    if kl is None or inputs.ref_log_probs is None:
        return None
    return kl(torch.where(inputs.mask, inputs.log_probs, 0.0), torch.where(inputs.mask, inputs.ref_log_probs, 0.0))


def needs_full_kl(objective: Objective) -> bool:
    """Whether the objective has a KL term over the whole vocabulary: its inputs then need ``full_kl``."""
    return isinstance(getattr(objective, "kl", None), FullKL)


def check_kl_weight(kl_weight: float) -> None:
    """Refuse a KL term that would push away from the reference."""
    if kl_weight < 0:
        raise ValueError(f"kl_weight must not be negative, got {kl_weight}")

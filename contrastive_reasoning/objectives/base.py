"""What every policy objective takes and returns, and diagnostics that do not depend on the split into micro-batches.

Token means add up over micro-batches, maxima are compared (``join_metrics``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class ObjectiveInputs:
    """Per-token quantities of B rollouts; what lies outside ``mask`` is ignored, whatever it holds."""

    log_probs: Float[Tensor, "B T"]
    """log π of each completion token, with gradient."""
    old_log_probs: Float[Tensor, "B T"]
    """The same under the policy that sampled."""
    ref_log_probs: Float[Tensor, "B T"] | None
    """The same under the reference; None where no reference is loaded."""
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
        """Each token's weight in the loss of an update of ``rows`` rollouts and ``tokens`` tokens."""
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
    """The metrics of ratios (B,T) of every objective: how many are clipped, how large they are, and KL(π_old ‖ π).

    Args:
        ratio: what the objective multiplies the advantage with, before it is clipped.
        log_ratio: log ρ of each token.
        clipped: whether the clip acts on the token.
        inputs: the objective's.
    """
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

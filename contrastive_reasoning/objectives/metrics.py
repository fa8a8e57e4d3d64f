"""Diagnostics that do not depend on the split: token means add up over micro-batches, maxima are compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from contrastive_reasoning.objectives.base import ObjectiveInputs


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
    """What every objective says of its ratios (B,T): how many are cut, how large they are, how far π is from π_old.

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


def joined(parts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The metrics of micro-batches as those of their update: ``*_max`` by the largest, all others by the sum."""
    columns = {name: torch.stack([part[name] for part in parts]) for name in parts[0]}
    return {name: column.max() if name.endswith("_max") else column.sum() for name, column in columns.items()}

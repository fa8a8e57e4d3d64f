"""From losses per token to the loss of an objective, the same for all of them:

        loss = Σ_{i,t} w_{i,t} ℓ_{i,t} + β Σ_{i,t} w_{i,t} KL_{i,t}

The KL term is weighted as the losses are; there is none without an estimator, nor without a reference.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from contrastive_reasoning.objectives.aggregate import Aggregation
from contrastive_reasoning.objectives.base import Objective, ObjectiveInputs, ObjectiveOutputs
from contrastive_reasoning.objectives.kl import KL, FullKL
from contrastive_reasoning.objectives.metrics import token_mean


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
    """The KL to the reference; 0 outside the mask whatever is stored there. None: there is no KL term.

    Raises:
        ValueError: for a ``FullKL`` where only the log-probs of the reference were given.
    """
    if isinstance(kl, FullKL):
        if inputs.full_kl is None and inputs.ref_log_probs is not None:
            raise ValueError("a KL over the whole vocabulary needs full_kl: log-probs of the tokens do not give it")
        return None if inputs.full_kl is None else torch.where(inputs.mask, inputs.full_kl, 0.0)
    if kl is None or inputs.ref_log_probs is None:
        return None
    return kl(torch.where(inputs.mask, inputs.log_probs, 0.0), torch.where(inputs.mask, inputs.ref_log_probs, 0.0))


def needs_full_kl(objective: Objective) -> bool:
    """Whether the objective has a KL term over the whole vocabulary: whoever makes its inputs computes ``full_kl``."""
    return isinstance(getattr(objective, "kl", None), FullKL)


def check_kl_weight(kl_weight: float) -> None:
    """Refuse a KL term that would push away from the reference."""
    if kl_weight < 0:
        raise ValueError(f"kl_weight must not be negative, got {kl_weight}")

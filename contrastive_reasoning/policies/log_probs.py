"""Log-probs of given tokens without ever holding the full logits (tokens × vocabulary).

Chunks of tokens are projected to the vocabulary, reduced to one number each, and recomputed in backward, so the
workspace is chunk × V whatever the batch. Where all logits together are small they are kept instead. The softmax is in
fp32, in fp64 for fp64.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from contrastive_reasoning.policies.few_shapes import linear_of_few_shapes

KEPT = 2**21
"""Logits of a pass, tokens × V, up to which they are kept for backward: 8 MB in fp32."""


def token_log_probs(
    hidden: Float[Tensor, "N D"],
    weight: Float[Tensor, "V D"],
    targets: Int[Tensor, " N"],
    *,
    temperature: float,
    chunk: int,
    bias: Float[Tensor, " V"] | None = None,
) -> Float[Tensor, " N"]:
    """log softmax(W h / τ)[target] of each of N tokens, in nats.

    Args:
        hidden: last hidden states, after the final norm, at the positions that predict ``targets``.
        weight: the vocabulary projection.
        targets: the tokens that were written.
        temperature: τ > 0, what the logits are divided by.
        chunk: tokens projected at a time, at least 1.
        bias: of the projection, if it has one.

    Raises:
        ValueError: for a temperature or chunk that is not positive.
    """
    if temperature <= 0:
        raise ValueError(f"temperature must be positive when scoring, got {temperature}")
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}")
    project = _project if hidden.shape[0] * weight.shape[0] <= KEPT else _recomputed
    parts = [
        project(hidden[i : i + chunk], weight, targets[i : i + chunk], temperature, bias)
        for i in range(0, max(hidden.shape[0], 1), chunk)  # of no token one empty chunk, which still has a gradient
    ]
    return torch.cat(parts)


def placed(values: Float[Tensor, " n"], mask: Bool[Tensor, "b t"]) -> Float[Tensor, "b t"]:
    """The values of the masked-in tokens, row by row, at their places; 0 elsewhere."""
    return torch.zeros(mask.shape, dtype=values.dtype, device=values.device).masked_scatter(mask, values)


def _recomputed(hidden: Tensor, weight: Tensor, targets: Tensor, temperature: float, bias: Tensor | None) -> Tensor:
    if not torch.is_grad_enabled():
        return _project(hidden, weight, targets, temperature, bias)
    return checkpoint(  # pyright: ignore[reportReturnType]
        _project, hidden, weight, targets, temperature, bias, use_reentrant=False, preserve_rng_state=False
    )


def _project(hidden: Tensor, weight: Tensor, targets: Tensor, temperature: float, bias: Tensor | None) -> Tensor:
    logits = linear_of_few_shapes(hidden, weight, bias)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32)) / temperature
    chosen = logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    return chosen - logits.logsumexp(-1)

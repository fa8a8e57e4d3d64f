"""Log-probs of given tokens, and KL to a reference, without ever holding the full logits (tokens × vocabulary).

Chunks of tokens are projected to the vocabulary, reduced to one number each, and recomputed in backward, so the
workspace is chunk × V whatever the batch. Where all logits together are small they are kept instead. The softmax is in
fp32, in fp64 for fp64.

        log π_n(y) = (W h_n / τ)_y − logsumexp(W h_n / τ)
        KL_n       = Σ_v p_n(v) (log p_n(v) − log q_n(v))       p = softmax(W h_n / τ),  q the reference's
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from contrastive_reasoning.policies.shape_bucketing import bucketed_linear

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

    Raises ValueError for a temperature or chunk that is not positive.
    """
    _check(temperature, chunk)
    project = _project if hidden.shape[0] * weight.shape[0] <= KEPT else partial(_recomputed, _project)
    parts = [
        project(hidden[i : i + chunk], weight, targets[i : i + chunk], temperature, bias)
        for i in range(0, max(hidden.shape[0], 1), chunk)  # of no token one empty chunk, which still has a gradient
    ]
    return torch.cat(parts)


def placed(values: Float[Tensor, " n"], mask: Bool[Tensor, "b t"]) -> Float[Tensor, "b t"]:
    """The values of the masked-in tokens, row by row, at their places; 0 elsewhere."""
    return torch.zeros(mask.shape, dtype=values.dtype, device=values.device).masked_scatter(mask, values)


def _check(temperature: float, chunk: int) -> None:
    if temperature <= 0:
        raise ValueError(f"temperature must be positive when scoring, got {temperature}")
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}")


def _recomputed(function: Callable[..., Tensor], *arguments: Any) -> Tensor:
    if not torch.is_grad_enabled():
        return function(*arguments)
    return checkpoint(function, *arguments, use_reentrant=False, preserve_rng_state=False)  # pyright: ignore


def _project(hidden: Tensor, weight: Tensor, targets: Tensor, temperature: float, bias: Tensor | None) -> Tensor:
    logits = _logits(hidden, weight, bias, temperature)
    chosen = logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    return chosen - logits.logsumexp(-1)


def liger_log_probs(
    hidden: Float[Tensor, "N D"],
    weight: Float[Tensor, "V D"],
    targets: Int[Tensor, " N"],
    *,
    temperature: float,
    chunk: int,
    bias: Float[Tensor, " V"] | None = None,
) -> Float[Tensor, " N"]:
    """``token_log_probs`` by liger-kernel's fused projection and cross-entropy, on CUDA: −CE(W (h / τ) + b / τ, y).

    The same numbers, with softmax and sums of gradients in fp32. The kernel chooses its chunks itself and writes the
    gradient over the logits of a chunk, so that less memory is read and written. Arguments and errors are those of
    ``token_log_probs``, which is called for tensors that are not on CUDA and for fp64.
    """
    if hidden.device.type != "cuda" or hidden.dtype == torch.float64 or not len(hidden) or temperature <= 0:
        return token_log_probs(hidden, weight, targets, temperature=temperature, chunk=chunk, bias=bias)
    dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else hidden.dtype
    fused: Any = import_module("liger_kernel.transformers.functional").liger_fused_linear_cross_entropy
    with torch.autocast("cuda", enabled=False):
        return -fused(
            (hidden / temperature).to(dtype),
            weight.to(dtype),
            targets,
            bias=None if bias is None else (bias / temperature).to(dtype),
            reduction="none",
            accum_dtype=torch.float32,
        ).float()


def require_liger() -> None:
    """Refuse a machine on which the kernel could not run.

    Raises ValueError where the extra or a CUDA device is missing.
    """
    if find_spec("liger_kernel") is None:
        raise ValueError("policy.kernels=liger needs the extra: pip install 'contrastive-reasoning[liger]'")
    if not torch.cuda.is_available():
        raise ValueError("policy.kernels=liger needs a CUDA device, and there is none; policy.kernels=torch does not")


def full_kl(
    hidden: Float[Tensor, "N D"],
    weight: Float[Tensor, "V D"],
    ref_hidden: Float[Tensor, "N E"],
    ref_weight: Float[Tensor, "V E"],
    *,
    temperature: float,
    chunk: int,
    bias: Float[Tensor, " V"] | None = None,
    ref_bias: Float[Tensor, " V"] | None = None,
) -> Float[Tensor, " N"]:
    """KL(policy ‖ reference) over the whole vocabulary at each of N tokens, in nats, never below 0 up to rounding.

    The arguments are those of ``token_log_probs``, of both; the width of the reference's states may be another.

    Raises ValueError for a temperature or chunk that is not positive, or vocabularies of different size.
    """
    _check(temperature, chunk)
    if len(weight) != len(ref_weight):
        raise ValueError(f"policy and reference must share a vocabulary: {len(weight)} tokens and {len(ref_weight)}")
    parts = []
    for i in range(0, max(hidden.shape[0], 1), chunk):  # of no token one empty chunk, which still has a gradient
        own, other = (hidden[i : i + chunk], weight, bias), (ref_hidden[i : i + chunk], ref_weight, ref_bias)
        parts.append(_recomputed(_divergence, *own, *other, temperature))
    return torch.cat(parts)


def _divergence(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    ref_hidden: Tensor,
    ref_weight: Tensor,
    ref_bias: Tensor | None,
    temperature: float,
) -> Tensor:
    policy = _log_softmax(hidden, weight, bias, temperature)
    reference = _log_softmax(ref_hidden, ref_weight, ref_bias, temperature)
    return (policy.exp() * (policy - reference)).sum(dim=-1)


def _log_softmax(hidden: Tensor, weight: Tensor, bias: Tensor | None, temperature: float) -> Tensor:
    return _logits(hidden, weight, bias, temperature).log_softmax(dim=-1)


def _logits(hidden: Tensor, weight: Tensor, bias: Tensor | None, temperature: float) -> Tensor:
    logits = bucketed_linear(hidden, weight, bias)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return logits if temperature == 1 else logits / temperature  # a division is two passes over a chunk

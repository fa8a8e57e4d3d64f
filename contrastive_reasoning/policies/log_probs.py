"""Log-probs of given tokens, and KL to a reference, without ever holding the full logits (tokens × vocabulary).

Chunks of tokens are projected to the vocabulary, reduced to one number each, and projected again in backward, so the
workspace is chunk × V for any batch. The softmax is in fp32, or in fp64 for fp64 inputs. It is computed for a block of
a chunk's tokens at a time.

        log π_n(y) = z_y − logsumexp(z)                         z = W h_n / τ, or c tanh(W h_n / c) / τ
        ∂ log π_n(y) / ∂z_v = [v = y] − softmax(z)_v
        KL_n       = Σ_v p_n(v) (log p_n(v) − log q_n(v))       p = softmax(W h_n / τ),  q the reference's
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear, pad
from torch.utils.checkpoint import checkpoint

from contrastive_reasoning.policies.shape_bucketing import bucketed_linear, spare_rows
from contrastive_reasoning.ranges import at_least

BLOCK_ON_CPU = 2**21
"""Maximum number of logits in a block, but at least one token's: 8 MiB in fp32 stay in the cache."""
BLOCK = 2**26
"""The same on other devices, where each block costs launches of kernels."""


def token_log_probs(
    hidden: Float[Tensor, "N D"],
    weight: Float[Tensor, "V D"],
    targets: Int[Tensor, " N"],
    *,
    temperature: float,
    chunk: int,
    bias: Float[Tensor, " V"] | None = None,
    softcap: float | None = None,
) -> Float[Tensor, " N"]:
    """log softmax(W h / τ)[target] of each of N tokens, in nats.

    Args:
        hidden: last hidden states, after the final norm, at the positions that predict ``targets``.
        weight: the vocabulary projection.
        targets: the tokens that were written.
        temperature: τ > 0, the divisor of the logits.
        chunk: tokens projected at a time, at least 1.
        bias: of the projection, if it has one.
        softcap: c > 0 bounds the logits before the division, z ↦ c tanh(z / c); None: no bound.

    Raises ValueError for a temperature or chunk that is not positive.
    """
    _check(temperature, chunk)
    return _ChunkedLogProbs.apply(hidden, weight, bias, targets, temperature, chunk, softcap)  # pyright: ignore


def scatter_to_rows(values: Float[Tensor, " n"], mask: Bool[Tensor, "b t"]) -> Float[Tensor, "b t"]:
    """The values of the masked-in tokens, row by row, at their places; 0 elsewhere."""
    return torch.zeros(mask.shape, dtype=values.dtype, device=values.device).masked_scatter(mask, values)


def _check(temperature: float, chunk: int) -> None:
    if temperature <= 0:
        raise ValueError(f"temperature must be positive when scoring, got {temperature}")
    at_least(1, chunk=chunk)


class _ChunkedLogProbs(torch.autograd.Function):
    """Backward overwrites the logits of a chunk with their gradient: one tensor of (chunk, V) exists at a time.

    Gradients of the weight are summed over chunks in its own dtype: for bfloat16 weights, more chunks mean more
    rounding.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        temperature: float,
        chunk: int,
        softcap: float | None,
    ) -> Tensor:
        ctx.dtype, ctx.temperature, ctx.chunk, ctx.softcap = _compute_dtype(hidden), temperature, chunk, softcap
        head = _cast((weight, bias), ctx.dtype)
        parts = [
            _chosen_and_normaliser(logits, wanted, temperature, softcap)
            for rows in _chunks(hidden, chunk)
            for logits, wanted in _blocks(bucketed_linear(hidden[rows].to(ctx.dtype), *head), targets[rows])
        ]
        chosen, normalisers = (torch.cat(column) for column in zip(*parts, strict=True))
        ctx.save_for_backward(hidden, weight, bias, targets, normalisers)
        return chosen - normalisers

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, targets, normalisers = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        to_hidden = torch.zeros_like(hidden) if wanted[0] else None
        to_weight = None
        to_bias = torch.zeros_like(bias) if wanted[2] else None
        cast_weight, cast_bias = _cast((weight, bias), ctx.dtype)
        for rows in reversed(_chunks(hidden, ctx.chunk)):
            states = hidden[rows].to(ctx.dtype)
            count, spare = len(states), spare_rows(len(states), states.device, ctx.dtype)
            states = pad(states, (0, 0, 0, spare)) if spare else states
            gradient = linear(states, cast_weight, cast_bias)
            gradient[count:].zero_()  # spare rows hold the bias, which would be added to its gradient
            columns = targets[rows], normalisers[rows], upstream[rows]
            for logits, target, normaliser, scale in _blocks(gradient[:count], *columns):
                _logits_to_gradient(logits, target, normaliser, scale, ctx.temperature, ctx.softcap)
            if to_bias is not None:
                to_bias += gradient.sum(dim=0)
            if to_hidden is not None:
                to_hidden[rows] = (gradient @ cast_weight)[:count]
            if wanted[1]:
                to_weight = _add(to_weight, gradient.T @ states, weight.dtype)
            del gradient, logits  # before the logits of the next chunk are computed; a block is a view of the gradient
        return to_hidden, to_weight, to_bias, None, None, None, None


def _chunks(hidden: Tensor, chunk: int) -> list[slice]:
    """The rows of each chunk; one empty chunk if there are no tokens."""
    return [slice(start, start + chunk) for start in range(0, max(len(hidden), 1), chunk)]


def block_rows(vocabulary: int, *, on_cpu: bool) -> int:
    """Maximum number of tokens in a block."""
    return max((BLOCK_ON_CPU if on_cpu else BLOCK) // vocabulary, 1)


def _blocks(logits: Tensor, *columns: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The rows of each block of the logits, and the same rows of the columns."""
    rows = block_rows(logits.shape[1], on_cpu=logits.device.type == "cpu")
    return zip(*(part.split(rows) for part in (logits, *columns)), strict=True)


def _compute_dtype(hidden: Tensor) -> torch.dtype:
    """The dtype of a product with these states: autocast's if it is enabled, else their own."""
    if torch.is_autocast_enabled(hidden.device.type) and hidden.dtype != torch.float64:
        return torch.get_autocast_dtype(hidden.device.type)
    return hidden.dtype


def _cast(head: tuple[Tensor, Tensor | None], dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
    """Weight and bias in ``dtype``, cast once for all chunks."""
    weight, bias = head
    return weight.to(dtype), None if bias is None else bias.to(dtype)


def _chosen_and_normaliser(
    logits: Tensor, targets: Tensor, temperature: float, softcap: float | None
) -> tuple[Tensor, Tensor]:
    logits = _scaled(logits, temperature, softcap)
    return logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1), logits.logsumexp(-1)


def _logits_to_gradient(
    logits: Tensor,
    targets: Tensor,
    normalisers: Tensor,
    upstream: Tensor,
    temperature: float,
    softcap: float | None,
) -> None:
    """Overwrites logits with their gradient."""
    scaled = _scaled(logits, temperature, softcap)
    # the slope of c tanh(z / c), before the next line overwrites the scaled logits
    slope = None if softcap is None else 1 - (scaled * (temperature / softcap)).square()
    gradient = scaled.sub_(normalisers[:, None]).exp_().mul_(-upstream[:, None])
    gradient.scatter_add_(1, targets[:, None], upstream[:, None])
    gradient = gradient if slope is None else gradient.mul_(slope)
    logits.copy_(gradient if temperature == 1 else gradient.div_(temperature))


def _add(total: Tensor | None, newest: Tensor, dtype: torch.dtype) -> Tensor:
    """The sum in ``dtype``; without a total, the newest part alone."""
    # a function, so that the newest part (V × D) is freed when it returns
    return newest.to(dtype) if total is None else total.add_(newest)


def liger_log_probs(
    hidden: Float[Tensor, "N D"],
    weight: Float[Tensor, "V D"],
    targets: Int[Tensor, " N"],
    *,
    temperature: float,
    chunk: int,
    bias: Float[Tensor, " V"] | None = None,
    softcap: float | None = None,
) -> Float[Tensor, " N"]:
    """``token_log_probs`` by liger-kernel's fused projection and cross-entropy, on CUDA: −CE(W (h / τ) + b / τ, y).

    It computes the same quantity, with softmax and sums of gradients in fp32. The kernel chooses its chunks itself and
    overwrites the logits of a chunk with the gradient, so that less memory is read and written. Arguments and errors
    are those of ``token_log_probs``, which is called for tensors that are not on CUDA and for fp64.
    """
    if hidden.device.type != "cuda" or hidden.dtype == torch.float64 or not len(hidden) or temperature <= 0:
        shared: dict[str, Any] = {"temperature": temperature, "chunk": chunk, "bias": bias, "softcap": softcap}
        return token_log_probs(hidden, weight, targets, **shared)
    dtype = _compute_dtype(hidden)
    fused: Any = import_module("liger_kernel.transformers.functional").liger_fused_linear_cross_entropy
    with torch.autocast("cuda", enabled=False):
        return -fused(
            (hidden / temperature).to(dtype),
            weight.to(dtype),
            targets,
            bias=None if bias is None else (bias / temperature).to(dtype),
            reduction="none",
            softcap=None if softcap is None else softcap / temperature,  # c tanh(z / c) / τ caps z / τ at c / τ
            accum_dtype=torch.float32,
        ).float()


def require_liger() -> None:
    """Checks that the kernel can run on this machine.

    Raises ValueError if the extra or a CUDA device is missing.
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
    softcap: float | None = None,
    ref_softcap: float | None = None,
    ref_temperature: float | None = None,
) -> Float[Tensor, " N"]:
    """KL(policy ‖ reference) over the whole vocabulary at each of N tokens, in nats, never below 0 up to rounding.

    The arguments are those of ``token_log_probs``, for both; the width of the reference's states may differ. Without
    ``ref_temperature`` the reference has the policy's.

    Raises ValueError for a temperature or chunk that is not positive, or vocabularies of different size.
    """
    _check(temperature, chunk)
    if len(weight) != len(ref_weight):
        raise ValueError(f"policy and reference must share a vocabulary: {len(weight)} tokens and {len(ref_weight)}")
    # autocast keeps the cast of a weight with a gradient; it would cast a detached one for every chunk
    ref_head = _cast((ref_weight, ref_bias), _compute_dtype(ref_hidden))
    head = weight, bias, temperature, softcap
    ref_scaling = temperature if ref_temperature is None else ref_temperature, ref_softcap
    parts = [
        _recompute(_divergence, hidden[rows], *head, ref_hidden[rows], *ref_head, *ref_scaling)
        for rows in _chunks(hidden, chunk)
    ]
    return torch.cat(parts)


def _recompute(function: Callable[..., Tensor], *arguments: Any) -> Tensor:
    if not torch.is_grad_enabled():
        return function(*arguments)
    # nothing in it is random, so the state of the generators need not be saved
    return checkpoint(function, *arguments, use_reentrant=False, preserve_rng_state=False)  # pyright: ignore


def _divergence(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    temperature: float,
    softcap: float | None,
    ref_hidden: Tensor,
    ref_weight: Tensor,
    ref_bias: Tensor | None,
    ref_temperature: float,
    ref_softcap: float | None,
) -> Tensor:
    policy = _log_softmax(hidden, weight, bias, temperature, softcap)
    reference = _log_softmax(ref_hidden, ref_weight, ref_bias, ref_temperature, ref_softcap)
    return (policy.exp() * (policy - reference)).sum(dim=-1)


def _log_softmax(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, temperature: float, softcap: float | None
) -> Tensor:
    return _scaled(bucketed_linear(hidden, weight, bias), temperature, softcap).log_softmax(dim=-1)


def _scaled(logits: Tensor, temperature: float, softcap: float | None) -> Tensor:
    """Logits, capped, over the temperature, in at least fp32; logits in fp32 may be overwritten."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if softcap is not None:
        logits = (logits / softcap).tanh() * softcap
    return logits if temperature == 1 else logits.div_(temperature)  # a division is two passes over a chunk

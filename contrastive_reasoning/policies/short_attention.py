"""Attention of few queries in half precision on a CPU, by batched products of matrices.

    S = scale · Q Kᵀ + mask        P = exp(S − lse)        O = P V
    dV = Pᵀ dO        dP = dO Vᵀ        dS = scale · P ∘ (dP − Σ dO ∘ O)        dQ = dS K        dK = dSᵀ Q

torch's fused kernel is slow for such rows. The query heads of a key head are rows of one matrix here, so keys are not
repeated. Scores are computed in fp32, the other products in the dtype of the values. Backward computes P again.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

SHORT = 128
"""Up to this many queries in a row, ``short_attention`` takes less time; torch's kernel skips keys of later tokens."""
SCORES_AT_ONCE = 2**20
"""Maximum number of scores held at a time, but at least those of a row: 4 MiB in fp32."""


def short_attention(
    query: Float[Tensor, "r K s q d"],
    key: Float[Tensor, "r K k d"],
    value: Float[Tensor, "r K k d"],
    mask: Float[Tensor, "#r 1 1 q k"],
    scale: float,
) -> Float[Tensor, "r K s q d"]:
    """softmax(scale · Q Kᵀ + mask) V for K key heads, each with s query heads.

    ``mask`` holds 0 and −∞, with at least one 0 for each query.
    """
    # always copies: a view would keep the tokens of other rows for backward
    tensors = (part.clone(memory_format=torch.contiguous_format) for part in (query, key, value))
    return _ShortAttention.apply(*tensors, mask, scale)  # pyright: ignore[reportReturnType]


class _ShortAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float) -> Tensor:
        output = torch.empty_like(query)
        total = torch.empty_like(query[..., :1], dtype=_wide(query.dtype))
        with torch.autocast(query.device.type, enabled=False):
            for rows in _parts(query, key):
                scores = _scores(query[rows], key[rows], _mask_of(rows, mask), scale)
                peak = scores.amax(-1, keepdim=True)
                weights = scores.sub_(peak).exp_()
                mass = weights.sum(-1, keepdim=True)
                total[rows] = peak + mass.log()
                seen = torch.matmul(weights.to(value.dtype).flatten(2, 3), value[rows])
                torch.div(seen.view_as(query[rows]), mass, out=output[rows])
        ctx.save_for_backward(query, key, value, mask, output, total)
        ctx.scale = scale
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, mask, output, total = ctx.saved_tensors
        to_query, to_key, to_value = (torch.empty_like(part) for part in (query, key, value))
        upstream = upstream.contiguous()
        inner = (upstream.to(total.dtype) * output).sum(-1, keepdim=True)
        with torch.autocast(query.device.type, enabled=False):
            for rows in _parts(query, key):
                q, k, v, g = query[rows].flatten(2, 3), key[rows], value[rows], upstream[rows].flatten(2, 3)
                weights = _scores(query[rows], k, _mask_of(rows, mask) - total[rows], ctx.scale).exp_()
                to_value[rows] = torch.matmul(weights.to(g.dtype).flatten(2, 3).transpose(2, 3), g)
                to_scores = torch.matmul(g, v.transpose(2, 3)).view_as(weights) - inner[rows]  # in fp32
                to_scores = to_scores.mul_(weights).mul_(ctx.scale).to(g.dtype).flatten(2, 3)
                to_query[rows] = torch.matmul(to_scores, k).view_as(query[rows])
                to_key[rows] = torch.matmul(to_scores.transpose(2, 3), q)
        return to_query, to_key, to_value, None, None


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _parts(query: Tensor, key: Tensor) -> list[slice]:
    step = max(SCORES_AT_ONCE // (query[0, ..., 0].numel() * key.shape[2]), 1)
    return [slice(start, start + step) for start in range(0, len(query), step)]


def _mask_of(rows: slice, mask: Tensor) -> Tensor:
    return mask if len(mask) == 1 else mask[rows]


def _scores(query: Tensor, key: Tensor, added: Tensor, scale: float) -> Float[Tensor, "r K s q k"]:
    """scale · Q Kᵀ + ``added``."""
    wide = _wide(query.dtype)
    shape = (*query.shape[:-1], key.shape[2])
    scores = torch.empty(shape, dtype=wide).copy_(added)  # a product added to it takes less time than adding to one
    scaled = (query.to(wide) * scale).flatten(0, 1).flatten(1, 2)
    scores.view(len(scaled), -1, shape[-1]).baddbmm_(scaled, key.to(wide).flatten(0, 1).transpose(1, 2))
    return scores

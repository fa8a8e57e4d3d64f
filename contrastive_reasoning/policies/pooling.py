"""Pooling of hidden states over masked-in tokens."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def mean_pool(hidden: Float[Tensor, "B T D"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B D"]:
    """h = (1/T) Σ_t h_t over the masked-in tokens, Eq. (9) of arXiv:2603.10101; an empty row gives zeros."""
    weights = mask.to(hidden.dtype).unsqueeze(-1)
    return (hidden * weights).sum(dim=1) / weights.sum(dim=1).clamp_min(1.0)


def mean_pool_rows(hidden: Float[Tensor, "n D"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B D"]:
    """``mean_pool`` for hidden states of the masked-in tokens alone, row by row."""
    sums = hidden.new_zeros(mask.shape[0], hidden.shape[1]).index_add(0, mask.nonzero()[:, 0], hidden)
    return sums / mask.sum(dim=1, keepdim=True).clamp_min(1)


def last_pool(hidden: Float[Tensor, "B T D"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B D"]:
    """The hidden state at the last masked-in token of each row. Raises ValueError for a row without one."""
    if not bool(mask.any(dim=1).all()):
        raise ValueError("last_pool needs at least one token in every row, got an empty row")
    rows, columns = (torch.arange(size, device=mask.device) for size in mask.shape)
    return hidden[rows, (mask * (1 + columns)).argmax(dim=1)]

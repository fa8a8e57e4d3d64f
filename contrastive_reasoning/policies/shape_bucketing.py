"""Shape bucketing: rows added to half-precision products on a CPU, so that their shapes recur.

oneDNN generates code for each shape of such a product. That takes longer than a small product itself, the code of a
shape takes half a megabyte, and the code of the last 1,024 shapes is kept. A rollout batch has another number of tokens
at every step, so without added rows most products would need new code forever. There are 32 sizes for every doubling.
At most a thirty-second of the rows is added, or fifteen rows where there are few.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import linear, pad

FEWEST = 16
"""Every size is a multiple of this."""
SIZES = 32
"""Sizes between a power of two and the next."""


def spare_rows(rows: int, device: torch.device, dtype: torch.dtype) -> int:
    """The number of rows to add to ``rows`` of a product in ``dtype``; 0 in full precision and on other devices."""
    if device.type != "cpu" or dtype not in (torch.bfloat16, torch.float16):
        return 0
    apart = max(FEWEST, (1 << max(rows, 1).bit_length() - 1) // SIZES)
    return -rows % apart


def bucketed_linear(
    x: Float[Tensor, "n i"],
    weight: Float[Tensor, "o i"],
    bias: Float[Tensor, " o"] | None,
    *,
    product: Callable[[Tensor, Tensor, Tensor | None], Tensor] = linear,
) -> Float[Tensor, "n o"]:
    """W x + b for each row, with spare rows if the product is in half precision on a CPU, also under autocast."""
    device = x.device
    dtype = torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else x.dtype
    spare = spare_rows(len(x), device, dtype)
    return product(pad(x, (0, 0, 0, spare)), weight, bias)[: len(x)] if spare else product(x, weight, bias)

"""Rows added to a product in half precision on a CPU, so that its shapes come again.

oneDNN builds code for each shape of such a product: that takes longer than a small product itself, holds half a
megabyte to one, and the code of the last 1,024 shapes is kept. A rollout batch has another number of tokens at every
step, so that without more rows most products would be built anew for ever. There are 32 sizes for every doubling; what
is added is at most a thirty-second, or fifteen rows where there are few.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import linear, pad

FEWEST = 16
"""Sizes are multiples of this, at least."""
SIZES = 32
"""Sizes between a power of two and the next."""


def spare_rows(rows: int, device: torch.device, dtype: torch.dtype) -> int:
    """How many rows to add to ``rows`` of a product in ``dtype``; none in full precision and on other devices."""
    if device.type != "cpu" or dtype not in (torch.bfloat16, torch.float16):
        return 0
    apart = max(FEWEST, (1 << max(rows, 1).bit_length() - 1) // SIZES)
    return -rows % apart


def bucketed_linear(
    x: Float[Tensor, "n i"], weight: Float[Tensor, "o i"], bias: Float[Tensor, " o"] | None
) -> Float[Tensor, "n o"]:
    """W x + b of each row, by a product with spare rows where it is in half precision on a CPU, autocast's included."""
    device = x.device
    dtype = torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else x.dtype
    spare = spare_rows(len(x), device, dtype)
    return linear(pad(x, (0, 0, 0, spare)), weight, bias)[: len(x)] if spare else linear(x, weight, bias)

"""The projection head: vectors into the space in which they are compared."""

from __future__ import annotations

from itertools import pairwise

from torch import nn


def projection_head(inputs: int, *, hidden: int, layers: int, outputs: int) -> nn.Sequential:
    """``layers`` hidden layers (linear, LayerNorm, GELU) and a linear map; with 0 layers the linear map alone.

    Raises:
        ValueError: ``layers`` is negative.
    """
    if layers < 0:
        raise ValueError(f"a projection head has 0 or more hidden layers, got {layers}")
    widths = [inputs] + [hidden] * layers
    blocks: list[nn.Module] = []
    for wide, narrow in pairwise(widths):
        blocks += [nn.Linear(wide, narrow), nn.LayerNorm(narrow), nn.GELU()]
    return nn.Sequential(*blocks, nn.Linear(widths[-1], outputs))

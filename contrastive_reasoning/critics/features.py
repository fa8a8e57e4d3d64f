"""What a numeric critic sees of a number: its own embedding, sines and cosines, and its size.

The embedding tells values apart, the waves carry divisibility and nearness (the period 2 is parity, the period 10 the
last digit), the size orders them. Which of these helps was measured, not derived.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from contrastive_reasoning.tasks.countdown.encoding import PADDING

VALUES = 2000
"""Numbers from here on share one embedding row; moves only make smaller ones."""
PERIODS = (2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16, 20, 25, 32, 50, 64, 100, 200, 500, 1000)


class NumberFeatures(nn.Module):
    """Integers ≥ −1 (−1 is padding) to feature vectors of ``width`` numbers.

    Args:
        dimension: width of the learned part; the fixed part adds ``2·len(PERIODS) + 4``.
    """

    waves: Tensor

    def __init__(self, *, dimension: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VALUES + 2, dimension)
        nn.init.normal_(self.embedding.weight, std=0.3)
        self.register_buffer("waves", fixed_features(torch.arange(PADDING, VALUES + 1)), persistent=False)
        self.width = dimension + self.waves.shape[1]

    def forward(self, numbers: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape F"]:
        rows = numbers.clamp(PADDING, VALUES) - PADDING
        return torch.cat([self.embedding(rows), self.waves[rows]], dim=-1)


def fixed_features(numbers: Int[Tensor, " N"]) -> Float[Tensor, "N W"]:
    """sin, cos of 2πv/period for each period, v/50, v/500, log(1+v), and whether it is padding (then the rest is 0)."""
    value = numbers.double()[:, None]
    angle = 2 * math.pi * value / torch.tensor(PERIODS, dtype=torch.double)
    size = torch.cat([value / 50, value / 500, value.clamp(min=0).log1p()], dim=1)
    padding = value < 0
    seen = torch.cat([angle.sin(), angle.cos(), size], dim=1).masked_fill(padding, 0.0)
    return torch.cat([seen, padding.double()], dim=1).float()

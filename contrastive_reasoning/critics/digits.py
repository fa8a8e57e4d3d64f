"""Digit embeddings: a number is read as its four decimal digits, each with an embedding of its own."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

DIGITS = 4
ABSENT = 10
"""The symbol of every digit of a padding entry (−1)."""


def digits_of(numbers: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape 4"]:
    """Decimal digits, most significant first; ``ABSENT`` four times for a negative number.

    >>> digits_of(torch.tensor([1045, -1])).tolist()
    [[1, 0, 4, 5], [10, 10, 10, 10]]
    """
    places = torch.tensor([10**power for power in reversed(range(DIGITS))], device=numbers.device)
    return (numbers[..., None] // places % 10).where(numbers[..., None] >= 0, ABSENT)


class DigitEmbedding(nn.Module):
    """Rows of ``width`` numbers → the concatenated embeddings of all their digits, ``width · 4 · dimension`` wide.

    Rows of twice the width are two arrays that share the embedding, one behind the other.
    """

    def __init__(self, *, width: int, dimension: int) -> None:
        super().__init__()
        self.table = nn.Embedding(ABSENT + 1, dimension)
        self.outputs = width * DIGITS * dimension

    def forward(self, numbers: Int[Tensor, "N W"]) -> Float[Tensor, "N E"]:
        return self.table(digits_of(numbers)).flatten(start_dim=1)

"""Encodings that a critic reads: a tensor, or a dict of tensors, with one row per state–action or goal."""

from __future__ import annotations

from typing import Any

from jaxtyping import Int
from torch import Tensor


def take(encoding: Any, rows: Int[Tensor, " N"]) -> Any:
    """The given rows of an encoding, in that order, repeats allowed."""
    if isinstance(encoding, dict):
        return {name: part[rows] for name, part in encoding.items()}
    return encoding[rows]


def rows_of(encoding: Any) -> int:
    """How many rows an encoding has."""
    first = next(iter(encoding.values())) if isinstance(encoding, dict) else encoding
    return first.shape[0]

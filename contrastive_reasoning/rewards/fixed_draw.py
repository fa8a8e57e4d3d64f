"""Draws that stand still: the same key has the same number in every process, batch and order of asking."""

from __future__ import annotations

import json
from hashlib import blake2b

BITS = 53
"""As many as a float holds: every draw is exact, and less than 1."""


def fixed_draw(*key: str | int | list[int]) -> float:
    """Uniform in [0, 1), a function of the key alone."""
    return fixed_integer(*key) / 2**BITS


def fixed_integer(*key: str | int | list[int] | list[str]) -> int:
    """Uniform in 0 … 2^53 − 1, a function of the key alone."""
    digest = blake2b(json.dumps(key).encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> (64 - BITS)

"""Countdown states as fixed-width rows of integers, the form in which numeric critics read them."""

from __future__ import annotations

from collections.abc import Iterable

WIDTH = 6
"""Numbers in a row: the most a problem may have."""
PADDING = -1
"""Stands where a state has fewer numbers."""
LARGEST = 9999
"""The largest number that a row may hold: four digits."""


def encode_state(numbers: Iterable[int]) -> list[int]:
    """The numbers in descending order, padded with −1 to ``WIDTH``.

    Raises:
        ValueError: more than ``WIDTH`` numbers, or one outside 0 … ``LARGEST``.
    """
    row = sorted(numbers, reverse=True)
    if len(row) > WIDTH:
        raise ValueError(f"a state holds at most {WIDTH} numbers, got {len(row)}: {row}")
    if row and (row[-1] < 0 or row[0] > LARGEST):
        raise ValueError(f"the numbers of a state lie in 0 … {LARGEST}, got {row}")
    return row + [PADDING] * (WIDTH - len(row))

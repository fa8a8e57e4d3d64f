"""Colours of numbers around zero: vermilion below, white at 0, blue above; from Okabe and Ito's palette."""

from __future__ import annotations

from collections.abc import Iterable

BELOW, ABOVE = (0xD5, 0x5E, 0x00), (0x00, 0x72, 0xB2)
DEEPEST = 0.65
"""Of the palette's colour at the ends of the scale, the rest white: black text on it stays readable."""


def limit_of(values: Iterable[float]) -> float:
    """The end of a scale for these numbers, the same on both sides: the largest distance from 0, or 0 for none."""
    return max(map(abs, values), default=0.0)


def colour(value: float, limit: float) -> str:
    """``#rrggbb`` of a number on the scale −limit … limit; what lies beyond has the colour of the end."""
    share = min(1.0, abs(value) / limit) if limit > 0 else 0.0
    end = ABOVE if value > 0 else BELOW
    return "#" + "".join(f"{round(255 + DEEPEST * share * (channel - 255)):02x}" for channel in end)

"""Checks of arguments. Each raises a ValueError with the argument's name, what is allowed, and the value."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import ge, gt, le, lt


def at_least(least: float, **values: float) -> None:
    """Also rejects None and NaN, as the others do."""
    for name, value in values.items():
        if value is None or not value >= least:
            raise ValueError(f"{name} must be at least {least}, got {value}")


def above(bound: float, **values: float) -> None:
    for name, value in values.items():
        if value is None or not value > bound:
            raise ValueError(f"{name} must be above {bound}, got {value}")


def within(interval: str, **values: float) -> None:
    """``interval`` is written as in mathematics, such as ``(0, 1]``."""
    low, high = (float(end) for end in interval[1:-1].split(","))
    above_low, below_high = gt if interval[0] == "(" else ge, lt if interval[-1] == ")" else le
    for name, value in values.items():
        if value is None or not (above_low(value, low) and below_high(value, high)):
            raise ValueError(f"{name} must lie in {interval}, got {value}")


def range_from(least: int, **values: Sequence[int]) -> None:
    """Each value is a range [lowest, highest]."""
    for name, bounds in values.items():
        if len(bounds) != 2 or not least <= bounds[0] <= bounds[1]:
            raise ValueError(f"{name} must be [lowest, highest] with {least} ≤ lowest ≤ highest, got {list(bounds)}")


def one_of(choices: Collection[str], **values: object) -> None:
    for name, value in values.items():
        if value not in choices:
            raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")

"""Countdown's rules on exact integers: replace two numbers by their sum, difference, product or quotient.

A state is the tuple of numbers left, the newest in front. For a pair (a, b) with a ≥ b the result must be an integer
with 0 ≤ result < 2000; the pairs come in list order, the operations in the order ``+ - * /`` (LongProc, arXiv:2501.05414).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

MAX_RESULT = 2000
"""Exclusive: no move may reach it. The numbers a problem starts from are not bound by it."""
OPERATIONS = ("+", "-", "*", "/")


class Move(NamedTuple):
    """One move ``a op b = result`` with a ≥ b, and the state it leads to."""

    a: int
    op: str
    b: int
    result: int
    state: tuple[int, ...]

    @property
    def equation(self) -> str:
        """``21+16=37``: the compact form of a move."""
        return f"{self.a}{self.op}{self.b}={self.result}"


def apply(op: str, a: int, b: int) -> int | None:
    """The result of ``a op b``; None where the rules forbid it.

    Raises:
        ValueError: on an operation that is none of ``+ - * /``.
    """
    if op == "+":
        result = a + b
    elif op == "-":
        result = a - b
    elif op == "*":
        result = a * b
    elif op == "/":
        if b == 0 or a % b:
            return None
        result = a // b
    else:
        raise ValueError(f"operation must be one of {' '.join(OPERATIONS)}, got {op!r}")
    return result if 0 <= result < MAX_RESULT else None


def pair_states(numbers: Sequence[int]) -> list[tuple[int, int, tuple[int, ...]]]:
    """Every pair i < j in list order as (larger, smaller, numbers left).

    Doctest:
        >>> pair_states((2, 7, 5))
        [(7, 2, (5,)), (5, 2, (7,)), (7, 5, (2,))]
    """
    numbers = tuple(numbers)
    pairs = []
    for i, first in enumerate(numbers):
        before = numbers[:i]
        for j in range(i + 1, len(numbers)):
            second = numbers[j]
            left = before + numbers[i + 1 : j] + numbers[j + 1 :]
            pairs.append((first, second, left) if first >= second else (second, first, left))
    return pairs


def legal_moves(numbers: Sequence[int]) -> list[Move]:
    """All legal moves in LongProc's order; empty for a single number. Moves between equal numbers are not merged."""
    moves = []
    for a, b, left in pair_states(numbers):
        for op in OPERATIONS:
            result = apply(op, a, b)
            if result is not None:
                moves.append(Move(a, op, b, result, (result, *left)))
    return moves

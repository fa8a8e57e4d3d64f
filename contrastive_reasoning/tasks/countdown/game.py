"""Countdown's rules on exact integers: replace two numbers by their sum, difference, product or quotient.

A state is the tuple of numbers left, the newest first. For a pair (a, b) with a ≥ b the result must be an integer with
0 ≤ result < 2000. Pairs are in list order, operations in the order ``+ - * /`` (LongProc, arXiv:2501.05414).
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

MAX_RESULT = 2000
"""Exclusive upper bound of the result of a move. The initial numbers of a problem may exceed it."""
OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.floordiv}


class Move(NamedTuple):
    """One move ``a op b = result`` with a ≥ b, and the state it leads to."""

    a: int
    op: str
    b: int
    result: int
    state: tuple[int, ...]

    @property
    def equation(self) -> str:
        """``21+16=37``: the compact form."""
        return f"{self.a}{self.op}{self.b}={self.result}"

    @property
    def spaced(self) -> str:
        """``21 + 16 = 37``: the form in LongProc's solutions."""
        return f"{self.a} {self.op} {self.b} = {self.result}"


def apply(op: str, a: int, b: int) -> int | None:
    """The result of ``a op b``; None if the rules forbid it."""
    if op == "/" and (b == 0 or a % b):
        return None
    result = OPERATIONS[op](a, b)
    return result if 0 <= result < MAX_RESULT else None


@lru_cache(maxsize=64)
def pair_indices(count: int) -> tuple[tuple[int, int, tuple[int, ...]], ...]:
    """All pairs i < j of ``count`` positions in list order, with the other positions: (0, 1, (2,)), (0, 2, (1,)), …"""
    return tuple(
        (i, j, tuple(k for k in range(count) if k not in (i, j))) for i in range(count) for j in range(i + 1, count)
    )


def legal_moves(numbers: Sequence[int]) -> list[Move]:
    """All legal moves in LongProc's order; empty for a single number. Moves between equal numbers are not merged."""
    moves = []
    for i, j, rest in pair_indices(len(numbers)):
        a, b = max(numbers[i], numbers[j]), min(numbers[i], numbers[j])
        left = tuple([numbers[k] for k in rest])
        for op in OPERATIONS:
            result = apply(op, a, b)
            if result is not None:
                moves.append(Move(a, op, b, result, (result, *left)))
    return moves


def results(a: int, b: int) -> list[int]:
    """The legal results of a pair in the order ``+ - * /``, the larger number first: ``apply`` for all operations."""
    if a < b:
        a, b = b, a
    found = [a + b, a - b, a * b]
    if b and not a % b:
        found.append(a // b)
    return found if a + b < MAX_RESULT and a * b < MAX_RESULT else [result for result in found if result < MAX_RESULT]


def checked_numbers(numbers: Sequence[int]) -> tuple[int, ...]:
    """The numbers as a tuple; raises a ValueError if there are none, or one is negative."""
    if not numbers or min(numbers) < 0:
        raise ValueError(f"numbers must be one or more integers ≥ 0, got {list(numbers)}")
    return tuple(numbers)

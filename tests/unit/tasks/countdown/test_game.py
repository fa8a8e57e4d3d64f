"""The rules of the game, compared with Python's exact fractions."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from contrastive_reasoning.tasks.countdown.game import Move, apply, legal_moves


def slow_moves(numbers: tuple[int, ...]) -> list[Move]:
    """Every pair and operation over exact fractions, without results that are not integers in 0 … 1999."""
    moves = []
    for i in range(len(numbers)):
        for j in range(i + 1, len(numbers)):
            a, b = max(numbers[i], numbers[j]), min(numbers[i], numbers[j])
            left = [number for k, number in enumerate(numbers) if k not in (i, j)]
            for op in "+-*/":
                divided = Fraction(a, b) if b else Fraction(1, 2)
                value = {"+": Fraction(a + b), "-": Fraction(a - b), "*": Fraction(a * b), "/": divided}[op]
                if value.denominator == 1 and 0 <= value < 2000:
                    moves.append(Move(a, op, b, int(value), (int(value), *left)))
    return moves


def test_legal_moves_match_exact_fractions() -> None:
    rng = random.Random(0)
    for count in [1, 2, 3, 4, 5] * 50:
        numbers = tuple(rng.choice([0, 1, 2, 3, 12, 49, 100, 1000, 1999, 4000]) for _ in range(count))
        assert legal_moves(numbers) == slow_moves(numbers)
    assert (legal_moves((2, 6, 0))[4].equation, legal_moves((2, 6, 0))[4].spaced) == ("2+0=2", "2 + 0 = 2")


@pytest.mark.parametrize(
    ("op", "a", "b", "result"),
    [
        ("+", 1000, 999, 1999),
        ("+", 1000, 1000, None),
        ("-", 3, 3, 0),
        ("-", 2, 3, None),
        ("-", 5000, 3000, None),
        ("*", 2, 1000, None),
        ("/", 7, 7, 1),
        ("/", 0, 5, 0),
        ("/", 5, 0, None),
        ("/", 7, 2, None),
        ("/", 4000, 2, None),
    ],
)
def test_apply_at_boundary_values(op: str, a: int, b: int, result: int | None) -> None:
    assert apply(op, a, b) == result

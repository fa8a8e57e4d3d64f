"""The rules against Python's own fractions."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from contrastive_reasoning.tasks.countdown.game import OPERATIONS, Move, apply, legal_moves, pair_indices

EXACT = {
    "+": lambda a, b: Fraction(a) + b,
    "-": lambda a, b: Fraction(a) - b,
    "*": lambda a, b: Fraction(a) * b,
    "/": lambda a, b: Fraction(a, b) if b else None,
}


def slow_moves(numbers: tuple[int, ...]) -> list[Move]:
    """Every pair and operation over exact fractions; what is no integer in 0 … 1999 is thrown away."""
    moves = []
    for i in range(len(numbers)):
        for j in range(i + 1, len(numbers)):
            a, b = max(numbers[i], numbers[j]), min(numbers[i], numbers[j])
            left = [number for k, number in enumerate(numbers) if k not in (i, j)]
            for op in "+-*/":
                value = EXACT[op](a, b)
                if value is not None and value.denominator == 1 and 0 <= value < 2000:
                    moves.append(Move(a, op, b, int(value), (int(value), *left)))
    return moves


def test_moves_of_three_numbers_by_hand() -> None:
    moves = legal_moves((2, 6, 0))
    assert [move.equation for move in moves] == [
        *("6+2=8", "6-2=4", "6*2=12", "6/2=3"),
        *("2+0=2", "2-0=2", "2*0=0"),
        *("6+0=6", "6-0=6", "6*0=0"),
    ]
    assert moves[0].state == (8, 0)
    assert moves[4].state == (2, 6)
    assert moves[0].spaced == "6 + 2 = 8"


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_moves_agree_with_fractions(count: int) -> None:
    rng = random.Random(count)
    for _ in range(50):
        numbers = tuple(rng.choice([0, 1, 2, 3, 12, 49, 100, 1000, 1999, 4000]) for _ in range(count))
        assert legal_moves(numbers) == slow_moves(numbers)


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
def test_apply_at_the_borders(op: str, a: int, b: int, result: int | None) -> None:
    assert apply(op, a, b) == result


def test_unknown_operation_is_refused() -> None:
    with pytest.raises(ValueError, match=r"operation must be one of \+ - \* /, got '\^'"):
        apply("^", 2, 3)


def test_pairs_come_in_list_order() -> None:
    assert pair_indices(3) == ((0, 1, (2,)), (0, 2, (1,)), (1, 2, (0,)))
    assert pair_indices(1) == ()
    assert OPERATIONS == ("+", "-", "*", "/")

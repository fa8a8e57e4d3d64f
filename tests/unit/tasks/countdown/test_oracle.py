"""The bitsets against brute force over all moves, and against recorded answers where they are at hand."""

from __future__ import annotations

import random

import pytest

from contrastive_reasoning.tasks.countdown import oracle
from contrastive_reasoning.tasks.countdown.game import legal_moves
from contrastive_reasoning.tasks.countdown.oracle import (
    best_moves,
    reachable,
    reachable_bits,
    reachable_targets,
    solvable,
)

NUMBERS = (0, 0, 1, 1, 2, 3, 5, 8, 13, 25, 44, 60, 999, 1999, 2000, 2500)


def slow_targets(state: tuple[int, ...]) -> set[int]:
    if len(state) == 1:
        return {state[0]}
    return set().union(*[slow_targets(move.state) for move in legal_moves(state)])


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_agrees_with_brute_force(count: int) -> None:
    rng = random.Random(count)
    for _ in range(40 if count < 4 else 12):
        numbers = tuple(rng.choice([0, 1, 2, 7, 12, 25, 49, 100, 1999, 3000]) for _ in range(count))
        expected = slow_targets(numbers)
        assert reachable_targets(numbers) == expected
        for target in (*range(-2, 60), 1999, 2000, 3000):
            assert reachable(numbers, target) == (target in expected)


def test_five_numbers_agree_with_four_after_each_move() -> None:
    numbers = (3, 7, 12, 20, 41)
    expected = frozenset().union(*[reachable_targets(move.state) for move in legal_moves(numbers)])
    assert reachable_targets(numbers) == expected


def test_order_of_the_numbers_does_not_matter() -> None:
    assert reachable_targets((4, 9, 1, 30)) == reachable_targets((30, 1, 9, 4))


def test_best_moves_are_those_that_keep_the_target() -> None:
    rng = random.Random(5)
    for _ in range(10):
        numbers = tuple(rng.randint(1, 20) for _ in range(4))
        target = rng.randint(10, 50)
        expected = [move for move in legal_moves(numbers) if target in slow_targets(move.state)]
        assert best_moves(numbers, target) == expected
    assert best_moves((1, 1), 5) == []
    assert best_moves((5,), 5) == []


@pytest.mark.parametrize("numbers", [(), (3, -1), (-1,)])
def test_bad_numbers_are_refused(numbers: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="integers ≥ 0"):
        reachable(numbers, 3)
    with pytest.raises(ValueError, match="integers ≥ 0"):
        reachable_targets(numbers)
    with pytest.raises(ValueError, match="integers ≥ 0"):
        solvable(numbers, 3)


def test_bits_need_a_move() -> None:
    with pytest.raises(ValueError, match="two or more"):
        reachable_bits((4,))


def test_the_cache_is_bounded() -> None:
    assert oracle._of_many.cache_info().maxsize == oracle.CACHED_STATES


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_solvable_says_what_reachable_says(count: int) -> None:
    rng = random.Random(count)
    answers = []
    for _ in range(12):
        numbers = [rng.choice(NUMBERS) for _ in range(count)]
        for target in (-1, 0, 1, *range(2, 60, 3), numbers[0], 1999, 2000, 2500):
            answers.append(solvable(numbers, target))
            assert answers[-1] == reachable(numbers, target), (numbers, target)
    assert {True, False} == set(answers)

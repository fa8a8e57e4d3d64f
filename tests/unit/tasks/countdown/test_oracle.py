"""The bitsets of the oracle, compared with brute force over all moves."""

from __future__ import annotations

import random

import pytest

from contrastive_reasoning.tasks.countdown.game import legal_moves
from contrastive_reasoning.tasks.countdown.oracle import best_moves, reachable, reachable_targets


def slow_targets(state: tuple[int, ...]) -> set[int]:
    if len(state) == 1:
        return {state[0]}
    return set().union(*[slow_targets(move.state) for move in legal_moves(state)])


def test_best_moves_keep_target_reachable() -> None:
    rng = random.Random(5)
    for _ in range(10):
        numbers = tuple(rng.randint(1, 20) for _ in range(4))
        target = rng.randint(10, 50)
        expected = [move for move in legal_moves(numbers) if target in slow_targets(move.state)]
        assert best_moves(numbers, target) == expected
    assert best_moves((1, 1), 5) == []
    assert best_moves((5,), 5) == []


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_reachable_and_reachable_targets_match_brute_force(count: int) -> None:
    rng = random.Random(count)
    answers = set()
    for _ in range((40, 40, 40, 40, 12, 1)[count]):
        numbers = tuple(rng.choice([0, 0, 1, 2, 7, 12, 25, 49, 100, 1999, 2000, 3000]) for _ in range(count))
        expected = slow_targets(numbers)
        assert reachable_targets(numbers) == reachable_targets(numbers[::-1]) == expected
        for target in (*range(-2, 60), numbers[0], 1999, 2000, 3000):
            assert reachable(numbers, target) == (target in expected)
            answers.add(target in expected)
    assert answers == {True, False}


@pytest.mark.parametrize("numbers", [(), (3, -1), (-1,)])
def test_missing_or_negative_numbers_are_rejected(numbers: tuple[int, ...]) -> None:
    for read in (lambda: reachable(numbers, 3), lambda: reachable_targets(numbers)):
        with pytest.raises(ValueError, match="numbers"):
            read()

"""The search tree against a plain recursion over legal moves, and its line count against the written search."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from contrastive_reasoning.tasks.countdown.game import legal_moves
from contrastive_reasoning.tasks.countdown.oracle import reachable
from contrastive_reasoning.tasks.countdown.search import search, search_lines
from contrastive_reasoning.tasks.countdown.trace import search_trace


def slow_search(state: tuple[int, ...], target: int, visited: list[tuple[int, ...]]) -> bool:
    visited.append(state)
    if len(state) == 1:
        return state[0] == target
    return any(slow_search(move.state, target, visited) for move in legal_moves(state))


def test_search_visits_same_states_as_plain_recursion() -> None:
    rng = random.Random(0)
    for _ in range(150):
        numbers, target = tuple(rng.randint(0, 60) for _ in range(rng.randint(1, 4))), rng.randint(0, 60)
        visited: list[tuple[int, ...]] = []
        solved = slow_search(numbers, target, visited)
        tree = search(numbers, target)
        assert (list(tree.states), tree.solved) == (visited, solved)
        assert solved == reachable(numbers, target)
        if solved:
            moves = tree.solution_moves()
            assert [numbers, *[move.state for move in moves]][-1] == (target,)
            assert all(after in legal_moves(before.state) for before, after in pairwise(moves))
        else:
            with pytest.raises(ValueError, match=f"target {target}"):
                tree.solution_moves()


def test_search_lines_counts_lines_of_written_search() -> None:
    rng = random.Random(2)
    for _ in range(60):
        numbers = tuple(rng.randint(0, 60) for _ in range(rng.randint(2, 4)))
        target = rng.randint(0, 60)
        lines = search_lines(numbers, target)
        assert (lines is not None) == reachable(numbers, target)
        if lines is None:
            continue
        written = search_trace(numbers, target).text.split("\n\n")[0].split("\n")[1:]
        assert lines == len(written)
        assert search_lines(numbers, target, limit=lines) == lines
        assert search_lines(numbers, target, limit=lines - 1) is None

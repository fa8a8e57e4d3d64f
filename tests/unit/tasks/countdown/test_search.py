"""The tree against a plain recursion that follows the rules move by move, its length against the written search."""

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


def test_visits_what_the_rules_say_in_their_order() -> None:
    rng = random.Random(0)
    for _ in range(150):
        numbers, target = tuple(rng.randint(0, 60) for _ in range(rng.randint(1, 4))), rng.randint(0, 60)
        visited: list[tuple[int, ...]] = []
        solved = slow_search(numbers, target, visited)
        tree = search(numbers, target)
        assert (list(tree.states), tree.solved) == (visited, solved)
        assert solved == reachable(numbers, target)


def test_every_state_is_one_move_from_its_parent() -> None:
    tree = search((5, 3, 8), 1000)
    children = {index: [] for index in range(len(tree.states))}
    for state, parent in zip(tree.states[1:], tree.parents[1:], strict=True):
        children[parent].append(state)
    for index, state in enumerate(tree.states):
        assert children[index] == [move.state for move in legal_moves(state)]


def test_solution_is_a_line_of_legal_moves() -> None:
    moves = search((21, 16, 17, 26), 46).solution_moves()
    assert [move.equation for move in moves] == ["21+16=37", "37-17=20", "26+20=46"]
    assert all(after in legal_moves(before.state) for before, after in pairwise(moves))


def test_an_unsolvable_problem_exhausts_everything() -> None:
    tree = search((1, 1), 5)
    assert not tree.solved
    assert {state[0] for state in tree.states[1:]} == {0, 1, 2}
    with pytest.raises(ValueError, match=r"the numbers \[1, 1\] do not reach the target 5"):
        tree.solution_moves()


def test_a_single_number_is_its_own_search() -> None:
    assert search((7,), 7).solution_moves() == ()
    assert not search((7,), 8).solved


@pytest.mark.parametrize("numbers", [(), (3, -1)])
def test_bad_numbers_are_refused(numbers: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="integers ≥ 0"):
        search(numbers, 3)


def test_lines_are_those_of_the_written_search() -> None:
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


def test_lines_of_one_number_are_refused() -> None:
    with pytest.raises(ValueError, match="two or more"):
        search_lines((4,), 4)

"""The tree against a plain recursion that follows the rules move by move."""

from __future__ import annotations

import random

import pytest

from contrastive_reasoning.tasks.countdown.game import legal_moves
from contrastive_reasoning.tasks.countdown.oracle import reachable, reachable_targets
from contrastive_reasoning.tasks.countdown.search import SearchTree, search


def slow_search(state: tuple[int, ...], target: int, visited: list[tuple[int, ...]]) -> bool:
    visited.append(state)
    if len(state) == 1:
        return state[0] == target
    return any(slow_search(move.state, target, visited) for move in legal_moves(state))


def random_problem(rng: random.Random) -> tuple[tuple[int, ...], int]:
    return tuple(rng.randint(0, 60) for _ in range(rng.randint(1, 4))), rng.randint(0, 60)


def children_of(tree: SearchTree, index: int) -> list[tuple[int, ...]]:
    return [tree.states[i] for i, parent in enumerate(tree.parents) if parent == index]


def test_visits_what_the_rules_say_in_their_order() -> None:
    rng = random.Random(0)
    for _ in range(150):
        numbers, target = random_problem(rng)
        visited: list[tuple[int, ...]] = []
        solved = slow_search(numbers, target, visited)
        tree = search(numbers, target)
        assert (list(tree.states), tree.solved) == (visited, solved)
        assert solved == reachable(numbers, target)


def test_parents_and_ends_describe_the_same_tree() -> None:
    tree = search((5, 3, 8), 1000)
    for node in tree.nodes():
        assert node.exhausted
        if len(node.state) > 1:
            assert children_of(tree, node.index) == [move.state for move in legal_moves(node.state)]
        under = [i for i in range(len(tree.states)) if node.index in ancestors(tree, i)]
        assert under == list(range(node.index, tree.ends[node.index]))
        assert node.depth == len(ancestors(tree, node.index)) - 1


def ancestors(tree: SearchTree, index: int) -> list[int]:
    path = [index]
    while tree.parents[path[-1]] >= 0:
        path.append(tree.parents[path[-1]])
    return path


def test_exhausted_states_are_dead_ends_and_know_all_they_reach() -> None:
    rng = random.Random(1)
    dead = 0
    for _ in range(40):
        numbers, target = random_problem(rng)
        tree = search(numbers, target)
        for node in tree.nodes():
            if node.exhausted:
                dead += 1
                assert tree.reached(node.index) == reachable_targets(node.state)
                assert target not in tree.reached(node.index)
            else:
                assert tree.reached(node.index) <= reachable_targets(node.state)
                assert target in tree.reached(node.index)
    assert dead > 1000


def test_solution_is_a_line_of_legal_moves() -> None:
    tree = search((21, 16, 17, 26), 46)
    assert [move.equation for move in tree.solution_moves()] == ["21+16=37", "37-17=20", "26+20=46"]
    assert tree.solution is not None
    assert [tree.exhausted(index) for index in tree.solution] == [False] * 4


def test_an_unsolvable_problem_exhausts_everything() -> None:
    tree = search((1, 1), 5)
    assert not tree.solved
    assert tree.solution is None
    assert tree.exhausted(0)
    assert tree.reached(0) == {0, 1, 2}
    with pytest.raises(ValueError, match=r"the numbers \[1, 1\] do not reach the target 5"):
        tree.solution_moves()


def test_a_single_number_is_its_own_search() -> None:
    assert search((7,), 7).solution == (0,)
    assert search((7,), 8).exhausted(0)


@pytest.mark.parametrize("numbers", [(), (3, -1)])
def test_bad_numbers_are_refused(numbers: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="integers ≥ 0"):
        search(numbers, 3)

"""LongProc's depth-first search as a tree of states, and the length of the written search.

The order is the game's: pairs in list order, ``+ - * /``, the new number first. It stops at the first solution.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from contrastive_reasoning.tasks.countdown.game import (
    MAX_RESULT,
    Move,
    checked_numbers,
    legal_moves,
    pair_indices,
    results,
)

_DROPPED = MAX_RESULT
"""Placeholder for the result of an invalid division: a value that the rules forbid."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchTree:
    """The visited states in the order of visits; index 0 is the start."""

    target: int
    states: Sequence[tuple[int, ...]]
    parents: Sequence[int]
    """Index of the state from which each state was reached; −1 for the start."""
    solved: bool

    def solution_moves(self) -> tuple[Move, ...]:
        """The moves of the solution found.

        Raises:
            ValueError: if the search found no solution.
        """
        if not self.solved:
            raise ValueError(unsolvable(self.states[0], self.target))
        path = [len(self.states) - 1]
        while path[-1]:
            path.append(self.parents[path[-1]])
        states = [self.states[index] for index in reversed(path)]
        return tuple(
            [next(move for move in legal_moves(before) if move.state == after) for before, after in pairwise(states)]
        )


def search(numbers: Sequence[int], target: int) -> SearchTree:
    """Searches until the first solution, or exhaustively. Raises a ValueError if there are no or negative numbers."""
    numbers = checked_numbers(numbers)
    states, parents = [numbers], [-1]
    solved = numbers == (target,) or _explore(0, target, states, parents)
    return SearchTree(target=target, states=states, parents=parents, solved=solved)


def search_lines(numbers: Sequence[int], target: int, *, limit: int | None = None) -> int | None:
    """Counts the lines under the header of LongProc's written search of two or more numbers, without writing it.

    The count measures the difficulty for a policy that searches. None if unsolvable or longer than ``limit``.
    """
    numbers = checked_numbers(numbers)
    if not 0 <= target < MAX_RESULT:
        return None
    budget = sys.maxsize if limit is None else limit
    found, lines = _lines_under(numbers, target, budget - 1)
    return 1 + lines if found and lines < budget else None


def unsolvable(numbers: Sequence[int], target: int) -> str:
    return f"the numbers {list(numbers)} do not reach the target {target}"


def _explore(index: int, target: int, states: list[tuple[int, ...]], parents: list[int]) -> bool:
    """Visits all states under ``states[index]``; returns True as soon as the target is found."""
    state = states[index]
    for i, j, rest in pair_indices(len(state)):
        left = tuple([state[k] for k in rest])
        for result in results(state[i], state[j]):
            child = len(states)
            states.append((result, *left))
            parents.append(index)
            if _explore(child, target, states, parents) if left else result == target:
                return True
    return False


def _lines_under(state: tuple[int, ...], target: int, budget: int) -> tuple[bool, int]:
    """Whether the target is found under a state, and the lines written until then; stops when over the budget."""
    if len(state) == 2:
        return _last_lines(max(state), min(state), target)
    lines = 0
    for i, j, rest in pair_indices(len(state)):
        left = tuple([state[k] for k in rest])
        a, b = state[i], state[j]
        if a < b:
            a, b = b, a
        lines += 1
        for result in (a + b, a - b, a * b, _DROPPED if b == 0 or a % b else a // b):
            lines += 1
            if lines > budget:
                return False, lines
            if result < MAX_RESULT:
                found, below = _lines_under((result, *left), target, budget - lines)
                lines += below
                if found:
                    return True, lines
    return False, lines


def _last_lines(a: int, b: int, target: int) -> tuple[bool, int]:
    if a + b == target:
        return True, 1
    if a - b == target:
        return True, 2
    if a * b == target:
        return True, 3
    return b > 0 and a == target * b, 4

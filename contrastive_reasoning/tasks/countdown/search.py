"""LongProc's depth-first search as a tree: states visited, values reached under each, dead ends certified.

The order is the game's: pairs in list order, ``+ - * /``, the new number in front; it stops at the first solution.
States are numbered as they are visited, so the states under state i are i+1 … ends[i]−1:

    index    0 ─ 1 ─ 2        parents  (-1, 0, 1, 1, 0, 4)
             │   └─ 3         ends     ( 6, 4, 3, 4, 6, 6)
             └─ 4 ─ 5         5 is the target: 0, 4, 5 is the solution; 1 is a dead end
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from contrastive_reasoning.tasks.countdown.game import Move, checked_numbers, legal_moves, pair_indices, results


class Node(NamedTuple):
    """One visited state."""

    index: int
    parent: int
    """Index of the state it was reached from; −1 for the start."""
    depth: int
    """Moves made since the start."""
    state: tuple[int, ...]
    exhausted: bool
    """True if everything under the state was tried and nothing was the target: a certified dead end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchTree:
    """The visited states in order of visiting; index 0 is the start."""

    target: int
    states: Sequence[tuple[int, ...]]
    parents: Sequence[int]
    """Index of the state each was reached from; −1 for the start."""
    ends: Sequence[int]
    """One past the last state visited under each."""
    solved: bool

    @property
    def solution(self) -> tuple[int, ...] | None:
        """Indices of the states from the start to the target; None if the search exhausted everything."""
        if not self.solved:
            return None
        path = [len(self.states) - 1]
        while path[-1]:
            path.append(self.parents[path[-1]])
        return tuple(reversed(path))

    def depth(self, index: int) -> int:
        return len(self.states[0]) - len(self.states[index])

    def exhausted(self, index: int) -> bool:
        """Whether everything under the state was tried in vain; True for a wrong final number, too."""
        return not (self.solved and self.ends[index] == len(self.states))

    def reached(self, index: int) -> frozenset[int]:
        """The final numbers found under the state, itself included; all there are if it is exhausted."""
        return frozenset([state[0] for state in self.states[index : self.ends[index]] if len(state) == 1])

    def nodes(self) -> Iterator[Node]:
        for index, (parent, state) in enumerate(zip(self.parents, self.states, strict=True)):
            yield Node(index, parent, self.depth(index), state, self.exhausted(index))

    def solution_moves(self) -> tuple[Move, ...]:
        """The moves of the solution found.

        Raises:
            ValueError: if the search exhausted everything.
        """
        path = self.solution
        if path is None:
            raise ValueError(unsolvable(self.states[0], self.target))
        return tuple([move_between(self.states[before], self.states[after]) for before, after in pairwise(path)])


def search(numbers: Sequence[int], target: int) -> SearchTree:
    """Searches until the first solution, or until everything is tried.

    Args:
        numbers: at least one number; each ≥ 0.
        target: any integer.

    Raises:
        ValueError: on no numbers or negative ones.
    """
    numbers = checked_numbers(numbers)
    states, parents, ends = [numbers], [-1], [0]
    solved = numbers == (target,) or _explore(0, target, states, parents, ends)
    ends[0] = len(states)
    return SearchTree(target=target, states=states, parents=parents, ends=ends, solved=solved)


def _explore(index: int, target: int, states: list[tuple[int, ...]], parents: list[int], ends: list[int]) -> bool:
    """Visits everything under ``states[index]``; True as soon as the target is found."""
    state = states[index]
    if len(state) == 2:
        return _finish(index, target, states, parents, ends)
    for i, j, rest in pair_indices(len(state)):
        left = tuple([state[k] for k in rest])
        for result in results(state[i], state[j]):
            child = len(states)
            states.append((result, *left))
            parents.append(index)
            ends.append(child)
            found = _explore(child, target, states, parents, ends)
            ends[child] = len(states)
            if found:
                return True
    return False


def _finish(index: int, target: int, states: list[tuple[int, ...]], parents: list[int], ends: list[int]) -> bool:
    """Visits the last numbers under two; nothing comes after any of them."""
    for result in results(*states[index]):
        states.append((result,))
        parents.append(index)
        ends.append(len(states))
        if result == target:
            return True
    return False


def unsolvable(numbers: Sequence[int], target: int) -> str:
    return f"the numbers {list(numbers)} do not reach the target {target}"


def move_between(before: tuple[int, ...], after: tuple[int, ...]) -> Move:
    """The first move of ``before`` that leads to ``after``.

    Raises:
        ValueError: if no legal move does.
    """
    for move in legal_moves(before):
        if move.state == after:
            return move
    raise ValueError(f"no legal move leads from {list(before)} to {list(after)}")

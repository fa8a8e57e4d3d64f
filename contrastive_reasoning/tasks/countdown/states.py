"""Countdown states: their encoding as rows of integers, and what the moves in completions show about them.

Different completions reach the same states, so all their moves form one graph. Four moves and what they show:

    (4, 3, 2) ──► (6, 4) ──► 24        (6, 4)     reached {24, 10, 2}; 6/4 is no move, so nothing is left to try:
        │            ├─────► 10                   exhausted, every other value is a dead end
        │            └─────► 2
        └───────► (5, 4) ──► 20        (5, 4)     reached {20}; whether 9 is reachable was not tried
                                       (4, 3, 2)  reached {24, 20, 10, 2}, not exhausted

This module does not search. It only lists the legal moves of a state to check whether each of them was written. A value
that no completion reached stays unknown unless completions have tried every move.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from contrastive_reasoning.tasks.base import Step
from contrastive_reasoning.tasks.countdown.game import legal_moves

WIDTH = 6
"""Length of a row: the most numbers that a problem may have."""
PADDING = -1
"""Value of the positions beyond the numbers of a state."""
LARGEST = 9999
"""The largest number that a row may hold: four digits."""
State = tuple[int, ...]
"""Numbers left, in descending order, so that the order in which a state was written does not matter."""


def encode_state(numbers: Iterable[int]) -> list[int]:
    """The numbers in descending order, padded with −1 to ``WIDTH``: the input form of numeric critics.

    Raises:
        ValueError: if there are more than ``WIDTH`` numbers, or one is outside 0 … ``LARGEST``.
    """
    row = sorted(numbers, reverse=True)
    if len(row) > WIDTH:
        raise ValueError(f"a state holds at most {WIDTH} numbers, got {len(row)}: {row}")
    if row and (row[-1] < 0 or row[0] > LARGEST):
        raise ValueError(f"the numbers of a state lie in 0 … {LARGEST}, got {row}")
    return row + [PADDING] * (WIDTH - len(row))


class Known(NamedTuple):
    """What the moves have shown about one state."""

    reached: frozenset[int]
    """Final values reached from it."""
    exhausted: bool
    """Whether every line of play from it was written, so that all other values are unreachable."""

    def merge(self, other: Known) -> Known:
        """Combines two records of the same state."""
        return Known(self.reached | other.reached, self.exhausted or other.exhausted)


def moves_of(numbers: Sequence[int], steps: Iterable[Step]) -> Iterator[tuple[State, State]]:
    """Yields (state before, state after) of every legal step of a completion, in the order written.

    A search returns to a state before it continues from there. The state before a step is therefore the last one
    written that has one number more. ``numbers`` are the numbers of the problem.
    """
    path = {len(numbers): _descending(numbers)}
    for step in steps:
        if step.legal:
            after = _descending(step.state)
            yield path[len(after) + 1], after
            path[len(after)] = after


def known_states(moves: Iterable[tuple[State, State]]) -> dict[State, Known]:
    """What the moves show about every state from which one of them starts, states with fewer numbers first."""
    children: dict[State, set[State]] = defaultdict(set)
    for before, after in moves:
        children[before].add(after)
    known: dict[State, Known] = {}
    for state in sorted(children, key=len):  # its children have fewer numbers and are already processed
        below = [known.get(child) or _without_moves(child) for child in children[state]]
        known[state] = Known(
            reached=frozenset().union(*[each.reached for each in below]),
            exhausted=all(each.exhausted for each in below) and children[state] >= _next_states(state),
        )
    return known


def _descending(numbers: Iterable[int]) -> State:
    return tuple(sorted(numbers, reverse=True))


@lru_cache(maxsize=1 << 14)
def _next_states(state: State) -> frozenset[State]:
    return frozenset([_descending(move.state) for move in legal_moves(state)])


def _without_moves(state: State) -> Known:
    """A single number has reached exactly its own value; nothing is known about a larger state without moves."""
    last = len(state) == 1
    return Known(frozenset(state if last else ()), exhausted=last)

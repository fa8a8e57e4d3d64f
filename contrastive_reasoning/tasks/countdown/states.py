"""Countdown states: as rows of integers, and what the moves written by completions show of them.

Completions meet in the same states, so the moves of all of them make one graph. Four moves and what they show:

    (4, 3, 2) ──► (6, 4) ──► 24        (6, 4)     reached {24, 10, 2}; 6/4 is no move, so nothing is left to try:
        │            ├─────► 10                   exhausted, every other value is a dead end
        │            └─────► 2
        └───────► (5, 4) ──► 20        (5, 4)     reached {20}; whether 9 is in reach was not tried
                                       (4, 3, 2)  reached {24, 20, 10, 2}, not exhausted

No search is made here. The rules only list the moves of a state, to see whether each of them was written: a value that
no completion reached stays unknown unless completions have tried everything.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from contrastive_reasoning.tasks.base import Step
from contrastive_reasoning.tasks.countdown.game import legal_moves

WIDTH = 6
"""Numbers in a row: the most a problem may have."""
PADDING = -1
"""Stands where a state has fewer numbers."""
LARGEST = 9999
"""The largest number that a row may hold: four digits."""
State = tuple[int, ...]
"""Numbers left, in descending order: the same state whatever the order in which it was written."""


def encode_state(numbers: Iterable[int]) -> list[int]:
    """The numbers in descending order, padded with −1 to ``WIDTH``: the form in which numeric critics read a state.

    Raises:
        ValueError: more than ``WIDTH`` numbers, or one outside 0 … ``LARGEST``.
    """
    row = sorted(numbers, reverse=True)
    if len(row) > WIDTH:
        raise ValueError(f"a state holds at most {WIDTH} numbers, got {len(row)}: {row}")
    if row and (row[-1] < 0 or row[0] > LARGEST):
        raise ValueError(f"the numbers of a state lie in 0 … {LARGEST}, got {row}")
    return row + [PADDING] * (WIDTH - len(row))


class Known(NamedTuple):
    """What has been shown of one state."""

    reached: frozenset[int]
    """Final values reached under it."""
    exhausted: bool
    """Every line of play under it was written, so that all other values are out of reach."""

    def merge(self, other: Known) -> Known:
        """What both have shown."""
        return Known(self.reached | other.reached, self.exhausted or other.exhausted)


def moves_of(numbers: Sequence[int], steps: Iterable[Step]) -> Iterator[tuple[State, State]]:
    """(state before, state after) of every legal step of a completion of a problem with ``numbers``, as written.

    A search comes back to a state before it goes on from there, so the state before a step is the last one written
    that has one number more.
    """
    path = {len(numbers): _descending(numbers)}
    for step in steps:
        if step.legal:
            after = _descending(step.state)
            yield path[len(after) + 1], after
            path[len(after)] = after


def known_states(moves: Iterable[tuple[State, State]]) -> dict[State, Known]:
    """What the moves show of every state that one of them starts from, states of fewer numbers first."""
    children: dict[State, set[State]] = defaultdict(set)
    for before, after in moves:
        children[before].add(after)
    known: dict[State, Known] = {}
    for state in sorted(children, key=len):  # its children have fewer numbers and are known by now
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
    """A last number is a value reached and nothing else; of a state that a completion stopped in nothing is known."""
    last = len(state) == 1
    return Known(frozenset(state if last else ()), exhausted=last)

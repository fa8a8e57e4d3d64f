"""How long a written search is, without writing it: what makes a problem easy or hard for a policy that searches."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from contrastive_reasoning.tasks.countdown.game import MAX_RESULT, checked_numbers, pair_indices

DROPPED = MAX_RESULT
"""Stands for the result of a division that does not come out even: beyond what is allowed."""


def search_lines(numbers: Sequence[int], target: int, *, limit: int | None = None) -> int | None:
    """How many lines LongProc's written search has under its header; None if unsolvable or longer than ``limit``.

    Raises:
        ValueError: on fewer than two numbers or negative ones.
    """
    numbers = checked_numbers(numbers)
    if len(numbers) < 2:
        raise ValueError(f"a search needs two or more numbers, got {list(numbers)}")
    if not 0 <= target < MAX_RESULT:
        return None
    budget = sys.maxsize if limit is None else limit
    found, lines = _lines_under(numbers, target, budget - 1)
    return 1 + lines if found and lines < budget else None


def _lines_under(state: tuple[int, ...], target: int, budget: int) -> tuple[bool, int]:
    """Whether the target is found under a state, and the lines written until then; stops once over the budget."""
    if len(state) == 2:
        return _last_lines(max(state), min(state), target)
    lines = 0
    for i, j, rest in pair_indices(len(state)):
        left = tuple([state[k] for k in rest])
        a, b = state[i], state[j]
        if a < b:
            a, b = b, a
        lines += 1
        for result in (a + b, a - b, a * b, DROPPED if b == 0 or a % b else a // b):
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

"""How long a written search is, without writing it: what makes a problem easy or hard for a policy that searches."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from contrastive_reasoning.tasks.countdown.game import OPERATIONS, apply, checked_numbers, pair_indices


def search_lines(numbers: Sequence[int], target: int, *, limit: int | None = None) -> int | None:
    """How many lines LongProc's written search has under its header; None if unsolvable or longer than ``limit``.

    Raises:
        ValueError: on fewer than two numbers or negative ones.
    """
    numbers = checked_numbers(numbers)
    if len(numbers) < 2:
        raise ValueError(f"a search needs two or more numbers, got {list(numbers)}")
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
        lines += 1
        for op in OPERATIONS:
            lines += 1
            if lines > budget:
                return False, lines
            result = apply(op, max(state[i], state[j]), min(state[i], state[j]))
            if result is not None:
                found, below = _lines_under((result, *left), target, budget - lines)
                lines += below
                if found:
                    return True, lines
    return False, lines


def _last_lines(a: int, b: int, target: int) -> tuple[bool, int]:
    for line, op in enumerate(OPERATIONS, 1):
        if apply(op, a, b) == target:
            return True, line
    return False, len(OPERATIONS)

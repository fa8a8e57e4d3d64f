"""The last move of a written search: two numbers are left, and each of their results is held against the target."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from contrastive_reasoning.tasks.countdown.attempts import attempts
from contrastive_reasoning.tasks.countdown.forms import EQUATION, TARGET, dead_end_form
from contrastive_reasoning.tasks.countdown.game import MAX_RESULT
from contrastive_reasoning.tasks.countdown.wording import Wording


class DeadEnd(NamedTuple):
    """What two numbers write when none of their results is the target."""

    before: str
    """In front of the equation that leads to them."""
    after: str
    results: tuple[Any, ...]
    """All that the two numbers give; what is dropped may be among them."""


def last_moves(
    state: list[int], target: int, level: int, wording: Wording, lines: list[str], solution: list[str]
) -> bool:
    """Writes each result of the two numbers against the target; True as soon as one is it."""
    for result, equation in attempts(state[0], state[1]):
        if result is None:
            lines.append(wording.drop(level, equation, state))
        elif result == target:
            lines.append(wording.found(level, equation, TARGET))
            solution.append(equation)
            return True
        else:
            lines.append(wording.miss(level, equation, result, TARGET))
    return False


@lru_cache(maxsize=1 << 15)
def dead_end(wording: Wording, level: int, first: int, second: int) -> DeadEnd:
    """Nine in ten lines of a long search are of this kind, and the same pairs come up in many problems."""
    a, b = (first, second) if first >= second else (second, first)
    if not b or a + b >= MAX_RESULT:
        return spelled_out(wording, level, first, second)
    product, rest = a * b, a % b
    before, form = dead_end_form(wording, level, product < MAX_RESULT, not rest)
    values = (first, second, a, b, a + b, a - b, product, f"{a / b:.1f}" if rest else a // b)
    return DeadEnd(before, form.fill(values), values[4:])


def spelled_out(wording: Wording, level: int, first: int, second: int) -> DeadEnd:
    """Any two numbers, line by line: what the form is short for."""
    state = [first, second]
    lines = [wording.add(level, EQUATION, state, TARGET)]
    last_moves(state, -1, level + 1, wording, lines, [])
    before, after = "\n".join(lines).split(EQUATION)
    return DeadEnd(before, after, tuple([result for result, _ in attempts(first, second)]))

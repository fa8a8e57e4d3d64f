"""The written search: LongProc's own text byte for byte, the annotated variant, or the bare solution."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple, get_args

from contrastive_reasoning.tasks.countdown.game import MAX_RESULT, checked_numbers, pair_indices
from contrastive_reasoning.tasks.countdown.oracle import reachable
from contrastive_reasoning.tasks.countdown.search import search, unsolvable
from contrastive_reasoning.tasks.countdown.wording import ANNOTATED, LONGPROC, Wording, closing

Style = Literal["longproc", "annotated", "direct"]
STYLES: tuple[Style, ...] = get_args(Style)
WORDINGS = {"longproc": LONGPROC, "annotated": ANNOTATED}

TARGET, EQUATION = "\x00", "\x01"
"""Stand where the target and an equation will be written, so that lines can be shared between problems."""


class Trace(NamedTuple):
    """A written search that ends in a solution."""

    text: str
    solution: tuple[str, ...]
    """Its equations in order: ``("21 + 16 = 37", …)``."""


def search_trace(numbers: Sequence[int], target: int, *, style: str = "longproc") -> Trace:
    """The search for one problem as text.

    Args:
        numbers: two or more numbers ≥ 0 in the order they are shown; LongProc's problems have four.
        target: the number to reach.
        style: ``longproc`` (the text of LongProc's builder), ``annotated`` (every line ends with the state),
            ``direct`` (the solution's moves joined by ``;``).

    Raises:
        ValueError: on an unknown style, fewer than two numbers, or a target that cannot be reached.
    """
    if style not in STYLES:
        raise ValueError(f"style must be one of {', '.join(STYLES)}, got {style!r}")
    numbers = checked_numbers(numbers)
    if len(numbers) < 2:
        raise ValueError(f"a trace needs two or more numbers, got {list(numbers)}")
    if len(numbers) > 4 and not reachable(numbers, target):  # the oracle knows at once; a search writes a million lines
        raise ValueError(unsolvable(numbers, target))
    if style == "direct":
        moves = search(numbers, target).solution_moves()
        return Trace(";".join([move.equation for move in moves]), tuple([move.spaced for move in moves]))
    return _written(list(numbers), target, WORDINGS[style])


def _written(numbers: list[int], target: int, wording: Wording) -> Trace:
    lines = [wording.opening(numbers, TARGET)]
    solution: list[str] = []
    if not _explore(numbers, target, 0, wording, lines, solution):
        raise ValueError(unsolvable(numbers, target))
    procedure = "\n".join(lines).replace(TARGET, str(target))
    return Trace(procedure + wording.end + closing(solution), tuple(solution))


def _explore(
    state: list[int], target: int, level: int, wording: Wording, lines: list[str], solution: list[str]
) -> bool:
    """Writes the search under ``state``; True as soon as the target is found, its equations then in ``solution``."""
    if len(state) == 2:
        return _evaluate(state, target, level + 1, wording, lines, solution)
    for i, j, rest in pair_indices(len(state)):
        first, second = state[i], state[j]
        left = [state[k] for k in rest]
        lines.append(wording.pick(level + 1, state, first, second, left))
        for result, equation in attempts(first, second):
            if result is None:
                lines.append(wording.drop(level + 2, equation, state))
            elif _try(equation, [result, *left], target, level + 2, wording, lines, solution):
                return True
    return False


def _try(
    equation: str, state: list[int], target: int, level: int, wording: Wording, lines: list[str], solution: list[str]
) -> bool:
    """Writes the move into ``state`` and the search under it."""
    if len(state) == 2:
        before, after, results = dead_end(wording, level, state[0], state[1])
        if target not in results:
            lines.append(f"{before}{equation}{after}")
            return False
    lines.append(wording.add(level, equation, state, TARGET))
    solution.append(equation)
    if _explore(state, target, level, wording, lines, solution):
        return True
    solution.pop()
    return False


def _evaluate(
    state: list[int], target: int, level: int, wording: Wording, lines: list[str], solution: list[str]
) -> bool:
    """Writes the last move: each result of the two numbers against the target."""
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
def dead_end(wording: Wording, level: int, first: int, second: int) -> tuple[str, str, tuple[int | None, ...]]:
    """Two numbers whose results all miss: the text before and after the equation that led there, and the results.

    Nine in ten lines of a long search are of this kind, and the same pairs come up in many problems.
    """
    state = [first, second]
    lines = [wording.add(level, EQUATION, state, TARGET)]
    _evaluate(state, -1, level + 1, wording, lines, [])
    before, after = "\n".join(lines).split(EQUATION)
    return before, after, tuple([result for result, _ in attempts(first, second)])


@lru_cache(maxsize=1 << 14)
def attempts(a: int, b: int) -> tuple[tuple[int | None, str], ...]:
    """The four operations on a pair as LongProc writes them: (result, equation) or (None, why it is dropped)."""
    if a < b:
        a, b = b, a
    return (
        _bounded(a + b, f"{a} + {b} = {a + b}"),
        _bounded(a - b, f"{a} - {b} = {a - b}"),
        _bounded(a * b, f"{a} * {b} = {a * b}"),
        _division(a, b),
    )


def _bounded(result: int, equation: str) -> tuple[int | None, str]:
    if result < MAX_RESULT:
        return result, equation
    return None, f"{equation}. {result} exceeds the maximum intermediate result, drop this branch."


def _division(a: int, b: int) -> tuple[int | None, str]:
    if b == 0:
        return None, f"{a} / {b} (invalid operation). drop this branch."
    if a % b == 0:
        return _bounded(a // b, f"{a} / {b} = {a // b}")
    return None, f"{a} / {b} = {a / b:.1f}. {a / b:.1f} is a decimal, drop this branch."

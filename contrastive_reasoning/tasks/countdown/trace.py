"""The written search: LongProc's own text byte for byte, the annotated variant, or the bare solution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

from contrastive_reasoning.tasks.countdown.attempts import attempts
from contrastive_reasoning.tasks.countdown.forms import TARGET, add_form, opening_form, pick_form
from contrastive_reasoning.tasks.countdown.game import checked_numbers, pair_indices
from contrastive_reasoning.tasks.countdown.last_move import dead_end, last_moves
from contrastive_reasoning.tasks.countdown.oracle import reachable
from contrastive_reasoning.tasks.countdown.search import search, unsolvable
from contrastive_reasoning.tasks.countdown.wording import ANNOTATED, LONGPROC, Wording, closing

Style = Literal["longproc", "annotated", "direct"]
STYLES: tuple[Style, ...] = get_args(Style)
WORDINGS = {"longproc": LONGPROC, "annotated": ANNOTATED}


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
    lines = [opening_form(wording, len(numbers)).fill(numbers)]
    solution: list[str] = []
    if not _explore(numbers, target, 0, wording, lines, solution):
        raise ValueError(unsolvable(numbers, target))
    procedure = "\n".join(lines).replace(TARGET, str(target))
    return Trace(procedure + wording.end + closing(solution), tuple(solution))


def _explore(
    state: list[int], target: int, level: int, wording: Wording, lines: list[str], solution: list[str]
) -> bool:
    """Writes the search under ``state``; True as soon as the target is found, its equations then in ``solution``."""
    count = len(state)
    if count == 2:
        return last_moves(state, target, level + 1, wording, lines, solution)
    for pair, (i, j, rest) in enumerate(pair_indices(count)):
        left = [state[k] for k in rest]
        lines.append(pick_form(wording, level + 1, count, pair).fill(state))
        for result, equation in attempts(state[i], state[j]):
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
            lines.append(before + equation + after)
            return False
    lines.append(add_form(wording, level, len(state)).fill([*state, equation]))
    solution.append(equation)
    if _explore(state, target, level, wording, lines, solution):
        return True
    solution.pop()
    return False

"""The moves of a completion, with their characters and the numbers left after each: where step credit lands.

Two kinds of text are read.

Search (LongProc's and the annotated format): each line ``|- Try a op b = c. …`` is a step, from ``Try`` to the end of
its line. A search walks down and comes back, so the state before a line is not the one after the line above. On the
path from the root there is one state for each size, and a line says its own size: ``Current number set: [ … ]`` (or
``### Current State: [ … ]``) counts the numbers after the move, ``Evaluate`` means that one is left. So neither
indentation nor Pick lines are needed. A line that rightly gives up a move which the rules forbid (a decimal, a result
that exceeds the limit, an invalid operation) is search and no step; giving up a legal move is an illegal step, and so
is a Try line that cannot be read or whose number set does not follow.

Moves: equations separated by ``;`` or line ends, played one after another. Text that is no equation is passed over.
They are those of the whole text where the problem asks for moves alone (the ``direct`` format), and there an illegal
one loses; else, without any Try line, those of the last ``<Solution>`` block, or of the whole text if there is none.

An illegal step leaves the state as it was. A Try line cut off by the end of the text is no step, and a Solution block
after a search repeats moves that are steps already. Every pattern is linear: time is bounded by the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from contrastive_reasoning.tasks.base import Problem, Step
from contrastive_reasoning.tasks.countdown.game import apply
from contrastive_reasoning.tasks.countdown.verifier import (
    EQUATION,
    Equation,
    equation_of,
    objection,
    solution_span,
    state_after,
)

State = tuple[int, ...]

MAX_STEPS = 5_000
"""Steps that are read; what follows them has none."""
MAX_TRY_LINE = 1000
"""Characters of a Try line that are read; the rest belongs to its span unread."""

_MOVES = re.compile(rf"(?:^|[;\n])[ \t\r]*{EQUATION}[ \t\r]*(?=[;\n]|$)")  # blanks as the verifier takes them
_TRY_LINE = re.compile(r"^[ \t|-]*(Try[ \t]+[-0-9][^\r\n]*)", re.MULTILINE)
_MOVE = re.compile(rf"Try[ \t]+{EQUATION}(?![0-9]|\.[0-9])")
_PRUNED = re.compile(r"is a decimal|exceeds the maximum|\(invalid operation\)")
_OPERANDS = re.compile(r"Try[ \t]+([0-9]{1,12}) ([-+*/]) ([0-9]{1,12})\b")
_NUMBER_SET = re.compile(r"(?:Current number set|### Current State): \[([0-9]{1,12}(?:, [0-9]{1,12}){0,15})\]")


def parse_steps(problem: Problem, completion: str) -> list[Step]:
    """The moves of a completion in the order written; never raises on any text.

    Each ``state`` is the tuple of numbers left after the step, the new one in front.
    """
    numbers = tuple(problem.fields["numbers"])
    if problem.fields.get("style") == "direct":
        steps = _move_steps(numbers, completion, offset=0, loses=True)
    elif _TRY_LINE.search(completion):
        steps = _search_steps(numbers, completion)
    else:
        start, end = solution_span(completion) or (0, len(completion))
        steps = _move_steps(numbers, completion[start:end], offset=start, loses=False)
    return list(islice(steps, MAX_STEPS))


def _move_steps(numbers: State, text: str, *, offset: int, loses: bool) -> Iterator[Step]:
    """``loses``: nothing but these moves counts, so that an illegal one loses."""
    state, lost = numbers, False
    for move in _MOVES.finditer(text):
        equation = equation_of(move)
        legal = objection(state, equation) is None
        state = state_after(state, equation) if legal else state
        lost = lost or (loses and not legal)
        settled = offset + move.end() + 1  # with the separator
        yield Step(
            start=offset + move.start(1), end=offset + move.end(4), state=state, legal=legal, settled=settled, lost=lost
        )


def _search_steps(numbers: State, text: str) -> Iterator[Step]:
    path: dict[int, State] = {len(numbers): numbers}  # size -> the state of that size on the path from the root
    current = numbers
    for line in _TRY_LINE.finditer(text):
        start, end = line.span(1)
        written = text[start : min(end, start + MAX_TRY_LINE)]
        cut_off = end == len(text) and not _says_where(written)
        if cut_off or _is_pruned(written):
            continue
        state = _state_reached(path, written)
        if state is not None:
            current = state
            path = {size: kept for size, kept in path.items() if size > len(state)} | {len(state): state}
        yield Step(start=start, end=end, state=current, legal=state is not None, settled=end + 1)


def _is_pruned(line: str) -> bool:
    """Whether the line gives up a move that the rules forbid, and says so."""
    operands = _OPERANDS.match(line)
    if operands is None or not _PRUNED.search(line):
        return False
    return apply(operands[2], int(operands[1]), int(operands[3])) is None


def _says_where(line: str) -> bool:
    return "Evaluate" in line or _NUMBER_SET.search(line) is not None or _PRUNED.search(line) is not None


def _state_reached(path: dict[int, State], line: str) -> State | None:
    """The state after a Try line; None where the move is unreadable, forbidden, given up or misstated."""
    match = _MOVE.match(line)
    if match is None or _PRUNED.search(line):
        return None
    equation, stated = equation_of(match), _stated_set(line)
    size = 1 if "Evaluate" in line else len(stated) if stated else None
    before = _state_before(path, equation, size)
    if before is None or objection(before, equation) is not None:
        return None
    after = state_after(before, equation)
    if stated is None:
        return after
    return stated if sorted(stated) == sorted(after) else None


def _stated_set(line: str) -> State | None:
    match = _NUMBER_SET.search(line)
    return tuple(map(int, match[1].split(", "))) if match else None


def _state_before(path: dict[int, State], equation: Equation, size_after: int | None) -> State | None:
    """The state on the path that a move starts from; where the line names no size, the deepest one that allows it."""
    if size_after is not None:
        return path.get(size_after + 1)
    return next((path[size] for size in sorted(path) if objection(path[size], equation) is None), None)

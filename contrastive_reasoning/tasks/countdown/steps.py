"""The moves of a completion, with their characters and the numbers left after each; step credit is assigned to them.

Two kinds of text are read.

Search (LongProc's and the annotated format): each line ``|- Try a op b = c. …`` is a step, from ``Try`` to the end of
the line. A search backtracks, so the state before a line is not always the state after the line above. The path from
the root has one state per size, and a line shows the size of its own state: ``Current number set: [ … ]`` (or
``### Current State: [ … ]``) lists the numbers after the move, and ``Evaluate`` means that one number is left.
Neither indentation nor Pick lines are needed. A line that correctly drops a forbidden move (a decimal, a result that
exceeds the limit, an invalid operation) is not a step. A line that drops a legal move is an illegal step. So is a Try
line that cannot be read, or whose number set does not follow from the move.

Moves: equations separated by ``;`` or line ends, played one after another; other text is skipped. If the problem asks
for moves only (the ``direct`` format), the whole text is read, and an illegal move loses. Otherwise this form applies
to texts without a Try line. The last ``<Solution>`` block is read, or the whole text if there is none.

An illegal step leaves the state unchanged. A Try line cut off by the end of the text is not a step. A Solution block
after a search repeats earlier moves and adds no steps. Every pattern takes time linear in the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from contrastive_reasoning.tasks.base import Problem, Step
from contrastive_reasoning.tasks.countdown.game import apply
from contrastive_reasoning.tasks.countdown.verifier import (
    EQUATION,
    SIGNS,
    equation_of,
    objection,
    solution_span,
    state_after,
)

State = tuple[int, ...]

MAX_STEPS = 5_000
"""Maximum number of steps that are read; the rest of the text is ignored."""
MAX_TRY_LINE = 1000
"""Maximum number of characters of a Try line that are read; the step's span still covers the whole line."""

_MOVES = re.compile(rf"(?:^|[;\n])[ \t\r]*{EQUATION}[ \t\r]*(?=[;\n]|$)")  # the same blanks as in the verifier
_TRY_LINE = re.compile(r"^[ \t|-]*(Try[ \t]+[-0-9][^\r\n]*)", re.MULTILINE)
_MOVE = re.compile(rf"Try[ \t]+{EQUATION}(?![0-9]|\.[0-9])")
_PRUNED = re.compile(r"is a decimal|exceeds the maximum|\(invalid operation\)")
_OPERANDS = re.compile(r"Try[ \t]+([0-9]{1,12}) ([-+*/]) ([0-9]{1,12})\b")
_NUMBER_SET = re.compile(r"(?:Current number set|### Current State): \[([0-9]{1,12}(?:, [0-9]{1,12}){0,15})\]")


def parse_steps(problem: Problem, completion: str) -> list[Step]:
    """Returns the moves of a completion in the order written; no text makes it raise.

    Each ``state`` is the tuple of numbers left after the step, the new one first; a number set in a Try line keeps its
    written order.
    """
    numbers, completion = tuple(problem.fields["numbers"]), completion.translate(SIGNS)
    if problem.fields.get("style") == "direct":
        steps = _move_steps(numbers, completion, offset=0, loses=True)
    elif _TRY_LINE.search(completion):
        steps = _search_steps(numbers, completion)
    else:
        start, end = solution_span(completion) or (0, len(completion))
        steps = _move_steps(numbers, completion[start:end], offset=start, loses=False)
    return list(islice(steps, MAX_STEPS))


def _move_steps(numbers: State, text: str, *, offset: int, loses: bool) -> Iterator[Step]:
    state, lost = numbers, False
    for move in _MOVES.finditer(text):
        equation = equation_of(move)
        legal = objection(state, equation) is None
        state = state_after(state, equation) if legal else state
        lost = lost or (loses and not legal)  # only these moves count
        start, end = offset + move.start(1), offset + move.end(4)
        settled = offset + move.end() + 1  # with the separator
        yield Step(start=start, end=end, state=state, legal=legal, settled=settled, lost=lost)


def _search_steps(numbers: State, text: str) -> Iterator[Step]:
    path: dict[int, State] = {len(numbers): numbers}  # size -> the state of that size on the path from the root
    current = numbers
    for line in _TRY_LINE.finditer(text):
        start, end = line.span(1)
        written = text[start : min(end, start + MAX_TRY_LINE)]
        stated, pruned = _NUMBER_SET.search(written), _PRUNED.search(written)
        if end == len(text) and not (stated or pruned or "Evaluate" in written):
            continue  # cut off
        tried = _OPERANDS.match(written)
        if pruned and tried and apply(tried[2], int(tried[1]), int(tried[3])) is None:
            continue  # correctly dropped
        state = _state_reached(path, written)
        if state is not None:
            current = state
            path = {size: kept for size, kept in path.items() if size > len(state)} | {len(state): state}
        yield Step(start=start, end=end, state=current, legal=state is not None, settled=end + 1)


def _state_reached(path: dict[int, State], line: str) -> State | None:
    """The state after a Try line; None if the move is unreadable, forbidden, dropped or misstated."""
    match, numbers = _MOVE.match(line), _NUMBER_SET.search(line)
    if match is None or _PRUNED.search(line):
        return None
    equation = equation_of(match)
    stated = tuple(map(int, numbers[1].split(", "))) if numbers else None
    size = 1 if "Evaluate" in line else len(stated) if stated else None  # after the move, if the line shows it
    starts = sorted(path) if size is None else [size + 1]
    before = next((path[size] for size in starts if size in path and objection(path[size], equation) is None), None)
    if before is None:
        return None
    after = state_after(before, equation)
    if stated is None:
        return after
    return stated if sorted(stated) == sorted(after) else None

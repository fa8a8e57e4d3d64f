"""The verifier: does a completion reach the target by legal moves? Model text is never executed.

An equation is ``a op b = c`` in ASCII digits and is read by a bounded grammar; Unicode signs such as ``×`` count as
their ASCII operators. (``int`` alone would read ``2_1`` and fullwidth digits as 21, and takes quadratic time on a long
run of digits.)

In a search completion the last complete ``<Solution>`` pair is verified, one equation per line. A ``direct`` completion
(``problem.fields["style"]``) is its moves joined by ``;`` or line ends. A solution has exactly n−1 equations for n
numbers. Each uses two of the numbers left and is exact, with 0 ≤ result < 2000; the last number is the target. Operands
may be in either order if the arithmetic allows it: ``14 + 50 = 64`` is right, ``54 - 104 = 50`` is not.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from contrastive_reasoning.tasks.base import OK, Problem, Verdict, unparsed, wrong
from contrastive_reasoning.tasks.countdown.game import MAX_RESULT, apply

MAX_DIGITS = 12
"""Maximum number of digits, more than any legal number needs; a longer number does not match."""
MAX_BLANKS = 16
"""Maximum number of blanks between two tokens of an equation."""
MAX_LINE = 120
"""Maximum number of characters that a line with one equation needs."""

_BLANK = rf"[ \t]{{0,{MAX_BLANKS}}}"
_NUMBER = rf"([0-9]{{1,{MAX_DIGITS}}})"
EQUATION = rf"{_NUMBER}{_BLANK}([-+*/]){_BLANK}{_NUMBER}{_BLANK}={_BLANK}{_NUMBER}"
"""The equation as a pattern of four groups: a, op, b, result. No blank before a or after the result."""
OPEN, CLOSE = "<Solution>", "</Solution>"
MAX_BLOCK = 4096
"""Maximum number of characters of a solution; a solution with six numbers needs less than a tenth of it."""
FLAWS = {
    r"^[ \t\r]*$": "is blank",
    r"[^\x00-\x7f]": "is not plain ASCII",
    r"^[^=]*$": "has no = sign",
    r"=.*=": "has two = signs",
    r"(?:^|[-+*/=])[ \t]*-[ \t]*[0-9]": "has a negative number",
    r"[0-9]\.[0-9]": "has a decimal number",
    r"[()]": "has brackets",
    r"[A-Za-z]": "has words in it",
}
"""Reasons why a line is not an equation, by pattern. The first match is used; the wording is fixed so that reasons can
be counted."""


SIGNS = str.maketrans("×·∙⋅÷−–", "****/--")
"""Translates Unicode operator signs to ASCII, one character to one, so that character positions stay the same."""


class Equation(NamedTuple):
    """The equation that a line states: ``a op b = result``, true or not."""

    a: int
    op: str
    b: int
    result: int

    def __str__(self) -> str:
        return f"{self.a} {self.op} {self.b} = {self.result}"


def equation_of(match: re.Match[str]) -> Equation:
    """The equation of a match whose first four groups are those of :data:`EQUATION`."""
    a, op, b, result = match.group(1, 2, 3, 4)
    return Equation(int(a), op, int(b), int(result))


def parse_equation(text: str) -> Equation | None:
    """Reads a line of one equation and blanks; returns None for anything else.

    Leading zeros are allowed (``014`` is 14). Signs, decimals, brackets, other digits and other operators give None.
    """
    match = re.fullmatch(EQUATION, text.strip(" \t\r"))
    return equation_of(match) if match else None


def verify(problem: Problem, completion: str) -> Verdict:
    """Verifies a completion; the reason of the verdict is the first error found."""
    numbers, target = problem.fields["numbers"], problem.fields["target"]
    if not completion.strip():
        return unparsed("empty completion")
    if problem.fields.get("style") == "direct":
        block, separator = completion, r"[;\n]"
    else:
        span = solution_span(completion)
        if span is None:
            return unparsed(f"no {CLOSE} tag after {OPEN}" if OPEN in completion else f"no {OPEN} tag")
        block, separator = completion[slice(*span)], r"\n"
    equations = _read_equations(block.translate(SIGNS), separator, count=len(numbers) - 1)
    if isinstance(equations, str):
        return unparsed(equations)
    reason = replay(numbers, target, equations)
    return wrong(reason) if reason else OK


def solution_span(completion: str) -> tuple[int, int] | None:
    """Start and end of the text inside the last complete ``<Solution>…</Solution>`` pair; None without one."""
    close = completion.rfind(CLOSE)
    start = completion.rfind(OPEN, 0, close) if close >= 0 else -1
    if start < 0:
        return None
    start += len(OPEN)
    return start, completion.index(CLOSE, start)


def _read_equations(block: str, separator: str, *, count: int) -> list[Equation] | str:
    """The equations of a block, or the reason why it does not hold exactly ``count``; ``separator`` is a pattern.

    Blank lines are allowed around the equations but not between them.
    """
    if len(block) > MAX_BLOCK:
        return f"solution longer than {MAX_BLOCK} characters"
    inside = block.strip(" \t\r\n;" if ";" in separator else " \t\r\n")
    lines = re.split(separator, inside) if inside else []
    if len(lines) != count:
        return f"number of equations: {len(lines)} instead of {count}"
    equations = []
    for number, line in enumerate(lines, start=1):
        equation = parse_equation(line)
        if equation is None:
            long = f"is longer than {MAX_LINE} characters" if len(line) > MAX_LINE else None
            flaws = (words for pattern, words in FLAWS.items() if re.search(pattern, line))
            return f"equation {number} {long or next(flaws, 'does not read a op b = c')}"
        equations.append(equation)
    return equations


def replay(numbers: Sequence[int], target: int, equations: Sequence[Equation]) -> str | None:
    """Applies the equations to ``numbers``; returns the reason why they do not reach ``target``, or None if they do."""
    state, seen = tuple(numbers), set(numbers)
    for equation in equations:
        reason = objection(state, equation, seen)
        if reason:
            return reason
        state = state_after(state, equation)
        seen.add(equation.result)
    return None if state == (target,) else f"ends at {', '.join(map(str, state))} instead of {target}"


def objection(state: Sequence[int], equation: Equation, seen: Collection[int] = ()) -> str | None:
    """The reason why the rules forbid a move in a state, or None; ``seen`` are the numbers that occurred earlier."""
    a, op, b, claimed = equation
    if op == "/" and b == 0:
        return f"division by zero: {a} / 0"
    left = list(state)
    for number in (a, b):
        if number not in left:
            return f"uses {number} twice" if number in (*state, *seen) else f"uses {number}, which is not there"
        left.remove(number)
    result = apply(op, a, b)
    if result is not None:
        return None if result == claimed else f"wrong arithmetic: {equation}"
    if op == "/" and a % b:
        return f"inexact division: {a} / {b}"
    if op == "-" and a < b:
        return f"negative result: {a} - {b}"
    return f"result not below {MAX_RESULT}: {a} {op} {b}"


def state_after(state: Sequence[int], equation: Equation) -> tuple[int, ...]:
    """The numbers left after a move that :func:`objection` allows, the new one first."""
    left = list(state)
    left.remove(equation.a)
    left.remove(equation.b)
    return (equation.result, *left)

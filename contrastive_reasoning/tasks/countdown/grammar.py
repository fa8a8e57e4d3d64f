"""The one sentence of Countdown's language, ``a op b = c`` in ASCII digits, read by a bounded grammar.

What a model wrote is data: nothing is evaluated, and ``int`` only meets a few ASCII digits. (On its own ``int`` would
read ``2_1`` and fullwidth digits as 21, and take quadratic time on a long run of digits.)
"""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_DIGITS = 12
"""More than any legal number needs; a longer one is refused unread."""
MAX_BLANKS = 16
"""Blanks between two words of an equation."""
MAX_LINE = 120
"""No line that holds one equation needs more characters."""

_BLANK = rf"[ \t]{{0,{MAX_BLANKS}}}"
_NUMBER = rf"([0-9]{{1,{MAX_DIGITS}}})"
EQUATION = rf"{_NUMBER}{_BLANK}([-+*/]){_BLANK}{_NUMBER}{_BLANK}={_BLANK}{_NUMBER}"
"""The sentence as a pattern of four groups: a, op, b, result. No blank before a or after the result."""
_EQUATION = re.compile(EQUATION)


class Equation(NamedTuple):
    """What a line claims: ``a op b = result``. The claim need not be true."""

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
    """Read a line that holds one equation and blanks; None for anything else.

    Leading zeros are read as digits (``014`` is 14). Refused: signs, decimals, brackets, other digits and operators.
    """
    match = _EQUATION.fullmatch(text.strip(" \t\r"))
    return equation_of(match) if match else None

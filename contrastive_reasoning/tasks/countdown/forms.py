"""Lines of a written search with blanks for the numbers: a form is made once for each kind of line and filled in often.

    a move to three numbers:  ``  |- Try ③. Add ⓪ to the number set. Current number set: [⓪, ①, ②], target: T. …``

The wordings say how a line reads; a form is what they write when they are given blanks. Filling one in is several times
faster than writing the line anew, and nine in ten lines of a search differ in their numbers alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

from contrastive_reasoning.tasks.countdown.attempts import no_integer, too_large
from contrastive_reasoning.tasks.countdown.game import pair_indices
from contrastive_reasoning.tasks.countdown.wording import Wording

TARGET, EQUATION = "\x00", "\x01"
"""Stand where the target and an equation will be written, so that lines can be shared between problems."""
_BLANK = re.compile("\x02(.)\x03")


class Blank(int):
    """Stands for a number and is printed as its place among the values."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"\x02{int(self)}\x03"


class Form(NamedTuple):
    text: str
    order: Callable[[Sequence[Any]], tuple[Any, ...]]
    """Which value stands in which blank."""

    @classmethod
    def of(cls, line: str) -> Form:
        places = [int(place) for place in _BLANK.findall(line)]
        return cls(_BLANK.sub("%s", line.replace("%", "%%")), itemgetter(*places))

    def fill(self, values: Sequence[Any]) -> str:
        return self.text % self.order(values)


def blanks(count: int) -> list[int]:
    """``count`` different ones."""
    return [Blank(place) for place in range(count)]


@lru_cache(maxsize=64)
def opening_form(wording: Wording, count: int) -> Form:
    """To be filled with the numbers."""
    return Form.of(wording.opening(blanks(count), TARGET))


@lru_cache(maxsize=1024)
def pick_form(wording: Wording, level: int, count: int, pair: int) -> Form:
    """The pair numbered ``pair`` of ``count`` numbers; to be filled with the state."""
    state = blanks(count)
    i, j, rest = pair_indices(count)[pair]
    return Form.of(wording.pick(level, state, state[i], state[j], [state[k] for k in rest]))


@lru_cache(maxsize=256)
def add_form(wording: Wording, level: int, count: int) -> Form:
    """To be filled with the state and the equation."""
    *state, equation = blanks(count + 1)
    return Form.of(wording.add(level, str(equation), state, TARGET))


@lru_cache(maxsize=256)
def dead_end_form(wording: Wording, level: int, bounded: bool, whole: bool) -> tuple[str, Form]:
    """Two numbers whose results all miss: what stands before the equation that leads to them, and the form after it.

    To be filled with the two in list order, the larger and the smaller, their sum, difference, product and quotient.

    Args:
        wording: of the lines.
        level: of the move that leaves the two numbers.
        bounded: whether their product is allowed; their sum is.
        whole: whether their quotient is an integer.
    """
    *state, a, b, total, difference, product, quotient = blanks(8)
    times, ratio = f"{a} * {b} = {product}", f"{a} / {b} = {quotient}"
    miss, drop, below = wording.miss, wording.drop, level + 1
    lines = [
        wording.add(level, EQUATION, state, TARGET),
        miss(below, f"{a} + {b} = {total}", total, TARGET),
        miss(below, f"{a} - {b} = {difference}", difference, TARGET),
        miss(below, times, product, TARGET) if bounded else drop(below, too_large(times, product), state),
        miss(below, ratio, quotient, TARGET) if whole else drop(below, no_integer(ratio, str(quotient)), state),
    ]
    before, after = "\n".join(lines).split(EQUATION)
    return before, Form.of(after)

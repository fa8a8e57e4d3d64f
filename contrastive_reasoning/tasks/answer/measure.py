r"""What a question asks its number in: "what percent", "how many dozen". There ``20\%`` is the 20 that is asked for.

Elsewhere a percentage is its value, and 20% is not 20. Data sets write golds of such questions without the sign, and
some with it, so it is taken off both sides: digits are compared, in the measure that was asked for.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from contrastive_reasoning.tasks.answer.extract import extract_answer
from contrastive_reasoning.tasks.answer.golds import gold_text
from contrastive_reasoning.tasks.answer.number import read_number
from contrastive_reasoning.tasks.answer.spelling import plain

_NUMBER_WORD = (
    r"(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|hundred|half|[a-z]*(?:teen|ty)(?:-[a-z]+)?)\b"
)
_FEW = rf"(?: (?!{_NUMBER_WORD})[a-z]+){{0,3}}"
"""Words of small letters that are no numbers: "what is twenty percent of 50" asks for no percentage."""

_SPACE = r"(?<!\s)\s*+"
"""From its first sign on and without a way back, so that a text of spaces takes no longer than it is long."""
_ENDS = r"(?![a-z]|\s*+(?:[.,/]?+\s*+\d|\\[dt]?frac))"
r"""No number or command goes on behind: out of "2%0" or "\f%rac" the sign would leave another than was written."""


class _Measure(NamedTuple):
    asked: re.Pattern[str]
    """In the question."""
    written: re.Pattern[str]
    """In an answer."""


_MEASURES = (
    _Measure(
        re.compile(
            r"\b(?:what|which|find|determine|calculate|compute|give|state|express|write)(?:'s)?"
            rf"{_FEW} percent(?:age)?s?\b"
            r"|\b(?:as an?|in|as|how many) (?:percent(?:age)?s?\b|\\?%)",
            re.IGNORECASE,
        ),
        re.compile(rf"{_SPACE}(?:\\?%|(?<![a-z])(?:percent(?:age)?(?: points?)?|pct)\b){_ENDS}", re.IGNORECASE),
    ),
    _Measure(
        re.compile(r"\bhow many dozens?\b", re.IGNORECASE),
        re.compile(rf"{_SPACE}(?<![a-z])dozens?\b(?: of\b)?{_ENDS}", re.IGNORECASE),
    ),
)


def in_asked_measure(question: str, gold: str, completion: str) -> tuple[str, str] | None:
    """Gold and completion to be compared instead, without the measure that is asked for.

    None where none is asked for, where neither names it, or both do, or where the gold is no number.
    """
    measure = next((one for one in _MEASURES if one.asked.search(question)), None)
    answer = extract_answer(completion)
    if measure is None or answer is None:
        return None
    wanted = gold_text(gold)
    if bool(measure.written.search(wanted)) == bool(measure.written.search(answer)):
        return None
    wanted, given = (measure.written.sub("", text) for text in (wanted, answer))
    return None if read_number(plain(wanted)) is None else (wanted, rf"\boxed{{{given}}}")

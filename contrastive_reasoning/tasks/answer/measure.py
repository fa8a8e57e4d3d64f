r"""The measure in which a question asks for a number: "what percent", "how many dozen". There ``20\%`` equals 20.

In other questions a percentage is its value, and 20% is not 20. Data sets write the gold answers of such questions
with or without the sign. The sign is therefore removed on both sides, and the numbers are compared in the measure of
the question.
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
"""Up to three lower-case words that are not numbers: "what is twenty percent of 50" does not ask for a percentage."""

_SPACE = r"(?<!\s)\s*+"
"""All whitespace from its first character on, without backtracking, so that a text of spaces takes linear time."""
_ENDS = r"(?![a-z]|\s*+(?:[.,/]?+\s*+\d|\\[dt]?frac))"
r"""No number or command continues after the sign: removing it from "2%0" or "\f%rac" would create a new one."""


class _Measure(NamedTuple):
    asked: re.Pattern[str]
    """The measure in a question."""
    written: re.Pattern[str]
    """The measure in an answer."""


_MEASURES = (
    _Measure(
        re.compile(
            r"\b(?:what|which|find|determine|calculate|compute|give|state|express|write)(?:'s)?"
            rf"{_FEW} percent(?:age)?s?\b(?![^.?]{{0,60}}\bas an? (?:decimal|fraction|ratio|number)\b)"
            r"|\b(?<!not )(?<!rather than )(?:as an?|in|as|how many) (?:percent(?:age)?s?\b|\\?%)",
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
    """Gold answer and completion without the measure that the question asks for, to be compared instead.

    None if the question asks for no measure, the completion has no answer, neither or both of the answers name the
    measure, or the gold answer is not a number.
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

"""Whether an answer is the gold one, in this order: number, words, units, list, equation, else formula.

Every comparison gives a verdict, or None where only the symbolic comparison can tell. So the same walk serves twice:
quickly in the process of the caller, and in full where time and memory are watched.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from contrastive_reasoning.tasks.answer.collection import Collection, compare_lists, every, read_collection
from contrastive_reasoning.tasks.answer.equation import is_relation, letters, same_name, sides, value_sides, wanted_side
from contrastive_reasoning.tasks.answer.number import read_based, read_number, same_based
from contrastive_reasoning.tasks.answer.spelling import bare, compact, read_words, same_words
from contrastive_reasoning.tasks.answer.units import other_unit, split_unit
from contrastive_reasoning.tasks.base import OK, Verdict, unparsed, wrong

MAX_DEPTH = 6
"""Equations and lists in lists."""
MAX_SIDES = 8
"""Sides of an equation, ``x = … = 7``."""
LETTERS = 3
"""Letters of a gold answer that may be a product, ``CD``; more of them are a word."""

Formula = Callable[[str, str], Verdict | None]
"""Decides one formula against another, both in plain spelling, or leaves it open."""

_WORKED_OUT = re.compile(r"\\(?:cup|cap|setminus|mathbb)(?![A-Za-z])|matrix")
"""What makes a set or a matrix out of several ones."""


def compare(gold: str, answer: str, formula: Formula, depth: int = 0) -> Verdict | None:
    """The verdict on an answer, both in their plain spelling, or None where ``formula`` leaves it open."""
    gold, answer = bare(gold), bare(answer)
    if compact(gold) == compact(answer):
        return OK
    if depth > MAX_DEPTH:
        return unparsed(f"lists nested deeper than {MAX_DEPTH}")

    deeper = partial(compare, formula=formula, depth=depth + 1)
    plain_verdict = _numbers(gold, answer) or _words(gold, answer)
    if plain_verdict:
        return plain_verdict
    if split_unit(gold)[1] or split_unit(answer)[1]:
        return _without_units(gold, answer, deeper)
    wanted, given = _items(gold), _items(answer)
    if wanted and given:
        return compare_lists(wanted, given, deeper)
    if given and not given.brackets:
        side = wanted_side(gold) if len(sides(gold)) > 1 else None
        return deeper(side, answer) if side else _one_value(gold, given, deeper)
    if len(sides(gold)) > 1 or len(sides(answer)) > 1:
        return _equations(gold, answer, formula, deeper)
    if (wanted or given) and not any(is_relation(text) or _WORKED_OUT.search(text) for text in (gold, answer)):
        return wrong(_count(given, wanted))
    return formula(gold, answer)


def _items(text: str) -> Collection | None:
    """The items of a list; ``2,125`` is a number."""
    return None if read_number(text) else read_collection(text)


def _numbers(gold: str, answer: str) -> Verdict | None:
    number, given = read_number(gold), read_number(answer)
    if number is None or given is None:
        return _in_a_base(gold, answer)
    if number.value != given.value:
        return wrong("another number")
    return wrong("another unit") if other_unit(number.unit, given.unit) else OK


def _in_a_base(gold: str, answer: str) -> Verdict | None:
    number, given = read_based(gold), read_based(answer)
    if number is None or given is None or not (number.base or given.base):
        return None
    return OK if same_based(number, given) else wrong("another number")


def _words(gold: str, answer: str) -> Verdict | None:
    words, given = read_words(gold), read_words(answer)
    if words is not None and given is not None:
        return OK if same_words(words, given) else wrong("other words")
    if words is not None and len(words) > LETTERS and len(sides(answer)) == 1:
        return wrong("no words")
    return wrong("words instead of a number") if given is not None and read_number(gold) else None


def _equations(
    gold: str, answer: str, formula: Formula, deeper: Callable[[str, str], Verdict | None]
) -> Verdict | None:
    """A name before an answer is left out, so is one before the gold answer where the answer has none or the same."""
    if len(sides(answer)) > MAX_SIDES:
        return unparsed(f"more than {MAX_SIDES} sides of an equation")
    if len(sides(gold)) > 1:
        if len(sides(answer)) > 1 and letters(gold) and not same_name(gold, answer):
            return formula(gold, answer)
        wanted = wanted_side(gold)
        if wanted is None:
            return formula(gold, answer)
        return every(deeper(wanted, side) for side in value_sides(answer, wanted))
    return every(deeper(gold, side) for side in value_sides(answer, gold))


def _without_units(gold: str, answer: str, deeper: Callable[[str, str], Verdict | None]) -> Verdict | None:
    (wanted, unit), (value, other) = split_unit(gold), split_unit(answer)
    return wrong("another unit") if other_unit(unit, other) else deeper(wanted, value)


def _one_value(gold: str, given: Collection, deeper: Callable[[str, str], Verdict | None]) -> Verdict | None:
    """Of several answers where one is wanted: right if all of them are it, ``1/2 or 0.5``."""
    verdict = every(deeper(gold, item) for item in given.items)
    return verdict if verdict is None or verdict.correct else wrong(_count(given, None))


def _count(answer: Collection | None, gold: Collection | None) -> str:
    given, wanted = (len(items.items) if items else 1 for items in (answer, gold))
    return f"number of answers: {given} instead of {wanted}"

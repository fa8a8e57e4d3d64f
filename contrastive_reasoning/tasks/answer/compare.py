"""Compares an answer with the gold answer, in this order: labels, number, words, units, list, equation, else formula.

Every comparison gives a verdict, or None if only the symbolic comparison can decide. The same code therefore runs
twice: quickly in the caller's process, and in full where time and memory are limited.
"""

from __future__ import annotations

import re
from functools import partial

from contrastive_reasoning.tasks.answer.collection import (
    Collection,
    Compare,
    any_of,
    compare_lists,
    every,
    read_collection,
    split,
)
from contrastive_reasoning.tasks.answer.number import is_decimal, read_based, read_number, rounds_to
from contrastive_reasoning.tasks.answer.relation import (
    Value,
    as_interval,
    as_union,
    at_constant,
    claims,
    condition_of_set,
    in_letters_of,
    in_parameter_of,
    in_variable_of,
    is_name,
    is_relation,
    is_solved,
    letters,
    order_signs,
    other_condition,
    read_value,
    reorder,
    same_name,
    same_numeric_equation,
    sides,
    value_sides,
    wanted_side,
    without_option,
)
from contrastive_reasoning.tasks.answer.spelling import LETTERS, bare, compact, is_product, read_words, same_words
from contrastive_reasoning.tasks.answer.units import other_unit, split_unit
from contrastive_reasoning.tasks.base import OK, Verdict, unparsed, wrong

MAX_DEPTH = 6
"""Maximum nesting depth of equations and lists."""
MAX_SIDES = 8
"""Maximum number of sides of an equation, ``x = … = 7``."""

_SET = re.compile(r"\\(?:cup|infty|setminus|le)(?![A-Za-z])|[(\[].*,.*[)\]]|<")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}|[0-9]{1,2}/[0-9]{1,2}/[0-9]{4}")
_RATIO_SIGN = re.compile(" ?: ?|(?<=[0-9]) to (?=[0-9])")
_TIME = re.compile(r"(?P<hour>[0-9]{1,2})(?: ?: ?(?P<minutes>[0-5][0-9]))?(?: ?(?P<half>[ap])m)?")
_RATIO = re.compile("[0-9] ?: ?[0-9]")
"""A ratio, which has no unit."""
_WORKED_OUT = re.compile(r"\\(?:cup|cap|setminus|mathbb)(?![A-Za-z])|matrix")
"""Operations on sets and matrices, which have to be evaluated."""


def compare(gold: str, answer: str, formula: Compare, depth: int = 0, *, as_text: bool = True) -> Verdict | None:
    """The verdict on an answer, with both texts in plain spelling; None if ``formula`` cannot decide.

    Args:
        formula: compares texts that are neither number, words, list nor equation.
        depth: the number of equations and lists around these two texts.
        as_text: whether an identical text is always correct, even if it cannot be read.
    """
    gold, answer = (bare(condition_of_set(text)) for text in (gold, answer))
    answer = in_letters_of(gold, answer)
    if as_text and compact(gold) == compact(answer):
        return OK
    if depth > MAX_DEPTH:
        return unparsed(f"lists nested deeper than {MAX_DEPTH}")

    deeper = partial(compare, formula=formula, depth=depth + 1, as_text=as_text)
    if without_option(answer) == answer and (option := without_option(gold)) != gold:
        return deeper(option, answer)
    wanted, given = read_value(gold), read_value(answer)
    if (wanted.text, given.text) != (gold, answer):
        return _beside(wanted, given) or deeper(wanted.text, in_parameter_of(wanted, given))
    golds, claimed = claims(gold), claims(answer)
    if golds != [gold] or claimed != [answer]:
        if _far_apart(claimed):
            return wrong("no approximation")
        return any_of(deeper(one, claimed[0]) for one in golds)
    return _one(reorder(gold), reorder(answer), formula, deeper)


def _one(gold: str, answer: str, formula: Compare, deeper: Compare) -> Verdict | None:
    """The verdict on an answer without label, modulus, condition or approximate value."""
    if _DATE.fullmatch(gold) or _DATE.fullmatch(answer):
        dates = [list(map(int, re.findall("[0-9]+", text))) for text in (gold, answer) if _DATE.fullmatch(text)]
        return OK if len(dates) == 2 and dates[0] == dates[1] else wrong("another date")
    plain_verdict = _times(gold, answer) or _numbers(gold, answer) or _words(gold, answer)
    if plain_verdict:
        return plain_verdict
    if _is_left_open(gold, answer):
        return wrong("a relation left open")
    wanted, given = _ratio(gold), _ratio(answer)
    if len(wanted) != len(given) and max(len(wanted), len(given)) > 2:
        return wrong("another ratio")
    if len(wanted) == len(given) > 1:
        return _same_ratio(wanted, given, deeper) or formula(gold, answer)
    if counted := _counted_values(gold, answer):
        return every(deeper(*pair) for pair in counted)
    if split_unit(gold)[1] or split_unit(answer)[1]:
        return _without_units(gold, answer, deeper)
    words, other_words = _and_or(gold), _and_or(answer)
    if words and other_words and words != other_words:
        return wrong("and instead of or, or the other way round")
    union = _as_sets(gold, answer)
    if union is not None:
        return formula(*union)
    wanted, given = _items(gold), _items(answer)
    if wanted and given:
        if _descends(wanted):  # [8, 4] is a list, as an interval has its lower end first
            wanted, given = (
                one._replace(brackets="()" if one.brackets == "[]" else one.brackets) for one in (wanted, given)
            )
        if _named_in_order(wanted, given):
            wanted, given = (Collection("()", found.items) for found in (wanted, given))
        elif _named_in_order(given, wanted._replace(brackets="")) and wanted.brackets == "()":
            given = Collection("()", tuple(sorted(given.items)))
        return compare_lists(wanted, given, deeper)
    if given and not given.brackets:
        side = wanted_side(gold) if len(sides(gold)) > 1 else None
        return deeper(side, answer) if side else _one_value(gold, given, deeper)
    if wanted and not wanted.brackets:
        return wrong(_count(given, wanted))
    if len(sides(gold)) > 1 or len(sides(answer)) > 1:
        return _equations(gold, in_variable_of(gold, answer), formula, deeper)
    if (wanted or given) and not any(is_relation(text) or _WORKED_OUT.search(text) for text in (gold, answer)):
        return wrong(_count(given, wanted))
    return formula(gold, answer)


def _times(gold: str, answer: str) -> Verdict | None:
    """The verdict on two times of day, ``05:00 pm``; one may omit am or pm. ``3:10`` without it is a ratio."""
    wanted, given = _TIME.fullmatch(gold), _TIME.fullmatch(answer)
    if (
        wanted is None
        or given is None
        or not (wanted["minutes"] or wanted["half"])
        or not any(time["half"] or (time["minutes"] or "1")[0] == "0" for time in (wanted, given))
    ):
        return None
    halves = {time["half"] for time in (wanted, given)} - {None}
    same = all(int(wanted[part] or 0) == int(given[part] or 0) for part in ("hour", "minutes"))
    return OK if same and len(halves) < 2 else wrong("another time")


def _is_left_open(gold: str, answer: str) -> bool:
    """Whether the answer is a relation to be solved, ``3x - 1 > 5``, and the gold answer a solved one or a set."""
    solved = is_solved(gold) if is_relation(gold) else not letters(gold) and order_signs(answer)
    return bool(solved and letters(answer)) and is_relation(answer) and not is_solved(answer)


def _ratio(text: str) -> list[str]:
    """The parts of a ratio, ``1:2:3`` or ``3 to 4``; a list of one part for any other text."""
    parts = _RATIO_SIGN.split(text)
    no_ratio = is_relation(text) or any(not part or len(split(part)) > 1 or read_words(part) for part in parts)
    return [text] if no_ratio else parts


def _same_ratio(gold: list[str], answer: list[str], deeper: Compare) -> Verdict | None:
    """The verdict on two ratios with equally many parts; None for two formulas, which are compared as a quotient."""
    wanted, given = ([number.value for number in map(read_number, parts) if number] for parts in (gold, answer))
    if len(wanted) == len(given) == len(gold):
        same = all(a * sum(given) == b * sum(wanted) for a, b in zip(wanted, given, strict=True))
        return OK if same and sum(wanted) and sum(given) else wrong("another ratio")
    return every(map(deeper, gold, answer)) if len(gold) > 2 else None


def _beside(wanted: Value, given: Value) -> Verdict | None:
    """A negative verdict if label, modulus or domain of the answer differs from that of the gold answer; else None."""
    if wanted.label and given.label and wanted.label != given.label:
        return wrong("another label")
    if wanted.modulus and given.modulus and compact(wanted.modulus) != compact(given.modulus):
        return wrong("another modulus")
    if other_condition(wanted, given):
        return wrong("another condition")
    return None


def _far_apart(values: list[str]) -> bool:
    r"""Whether numbers written as approximately equal are far apart: ``5 \approx 6``."""
    numbers = [number.value for number in map(read_number, values) if number]
    return bool(numbers) and max(numbers) - min(numbers) >= max(1, max(map(abs, numbers)) / 20)


def _as_sets(gold: str, answer: str) -> tuple[str, str] | None:
    """Both texts as sets, if one is ``x < 2 or x > 3`` and the other consists of such inequalities or intervals."""
    wanted, given = as_union(gold), as_union(answer)
    if wanted is None and given is None:
        return None
    wanted, given = wanted or as_interval(gold) or gold, given or as_interval(answer) or answer
    return None if letters(wanted) or letters(given) or not any(map(_SET.search, (gold, answer))) else (wanted, given)


def _items(text: str) -> Collection | None:
    """The items of a list; None for ``2,125``, a number. Items with different units, ``4 hours and 8 minutes``, are
    ordered."""
    items = None if read_number(text) else read_collection(text)
    if items is not None and not items.brackets and len({split_unit(item)[1] for item in items.items} - {""}) > 1:
        return Collection("()", items.items)
    return items


def _descends(gold: Collection) -> bool:
    ends = [number.value for number in map(read_number, gold.items) if number]
    return gold.brackets == "[]" and len(ends) == len(gold.items) == 2 and ends[0] >= ends[1]


def _and_or(text: str) -> set[str]:
    """The words ``and`` and ``or`` between inequalities, ``x < 2 or x > 3``."""
    return set(re.findall(r" (and|or) ", text)) if order_signs(text) > 1 else set()


def _counted_values(gold: str, answer: str) -> list[tuple[str, str]]:
    """Pairs the values of ``2 boys and 3 girls`` with those of the same words, in any order; empty for other texts."""
    lists = (read_collection(text) or Collection("", ()) for text in (gold, answer))
    wanted, given = ([] if one.brackets else [split_unit(item) for item in one.items] for one in lists)
    units = [sorted(unit for _, unit in items) for items in (wanted, given)]
    if len(set(units[0])) != len(wanted) or units[0] != units[1] or len(wanted) < 2 or "" in units[0]:
        return []
    values = {unit: value for value, unit in given}
    return [(value, values[unit]) for value, unit in wanted]


def _named_in_order(gold: Collection, answer: Collection) -> bool:
    """Whether the gold answer names its values, ``x = 1, y = 2``, and the answer does not: ``1, 2``."""
    names = {letters(sides(item)[0]) for item in gold.items if len(sides(item)) == 2 and is_name(sides(item)[0])}
    without = all(len(sides(item)) == 1 for item in answer.items)
    return not gold.brackets and not answer.brackets and len(names) == len(gold.items) and without


def _numbers(gold: str, answer: str) -> Verdict | None:
    number, given = read_number(gold), read_number(answer)
    if number is None or given is None:
        return _in_a_base(gold, answer)
    if number.value != given.value and not (rounds_to(gold, given.value) and not is_decimal(answer)):
        return wrong("another number")
    return wrong("another unit") if other_unit(number.unit, given.unit) else OK


def _in_a_base(gold: str, answer: str) -> Verdict | None:
    """The verdict on two numbers in a base; the answer may omit the base that the gold answer names."""
    number, given = read_based(gold), read_based(answer)
    if number is None or given is None or not (number.base or given.base or _is_hexadecimal(gold, answer)):
        return None
    same = number.digits == given.digits and given.base in ("", number.base or "10")
    return OK if same else wrong("another number")


def _is_hexadecimal(*texts: str) -> bool:
    """Whether no text consists only of digits or only of letters: ``2A``."""
    return not any(text.isdigit() or text.isalpha() for text in texts)


def _words(gold: str, answer: str) -> Verdict | None:
    words, given = read_words(gold), read_words(answer)
    if words is not None and given is not None:
        if is_product(gold) and sorted(gold) == sorted(answer):
            return OK
        return OK if same_words(words, given) else wrong("other words")
    if words is not None and len(words) > LETTERS and len(sides(answer)) == 1:
        return wrong("no words")
    return wrong("words instead of a number") if given is not None and read_number(gold) else None


def _equations(gold: str, answer: str, formula: Compare, deeper: Compare) -> Verdict | None:
    """The verdict if the gold answer or the answer is an equation.

    A name before the answer is ignored. A name before the gold answer is ignored if the answer has none or the same.
    """
    if len(sides(answer)) > MAX_SIDES:
        return unparsed(f"more than {MAX_SIDES} sides of an equation")
    if (same := same_numeric_equation(gold, answer)) is not None:
        return OK if same else wrong("another equation")
    wanted: str | None = gold
    if len(sides(gold)) > 1:
        if len(sides(answer)) > 1 and letters(gold) and not same_name(gold, answer):
            if any("=" in equation[0] for equation in (sides(gold), sides(answer))):
                return wrong("another event")
            named, given = at_constant(sides(gold)[0]), at_constant(sides(answer)[0])
            if named and given:
                same = deeper(named[1], given[1]) if named[0] == given[0] else wrong("another function")
                return every((same, deeper(sides(gold)[-1], sides(answer)[-1])))
            return formula(gold, answer)
        wanted = wanted_side(gold)
        if wanted is None:
            return formula(gold, answer)
    claimed = value_sides(answer, wanted)
    return wrong("an equation left open") if claimed is None else every(deeper(wanted, side) for side in claimed)


def _without_units(gold: str, answer: str, deeper: Compare) -> Verdict | None:
    (wanted, unit), (value, other) = split_unit(gold), split_unit(answer)
    if other_unit(unit, other) or (not unit and _RATIO.search(wanted)) or (not other and _RATIO.search(value)):
        return wrong("another unit")
    if unit == "deg" and not other and r"\pi" in answer:
        wanted = _in_radians(wanted)
    if other == "deg" and not unit and r"\pi" in gold:
        value = _in_radians(value)
    return deeper(wanted, value)


def _in_radians(degrees: str) -> str:
    return degrees if read_number(degrees) is None else rf"\frac{{{degrees} \cdot \pi}}{{180}}"


def _one_value(gold: str, given: Collection, deeper: Compare) -> Verdict | None:
    """The verdict on several answers if one is expected: correct if all of them equal it, ``1/2 or 0.5``."""
    verdict = every(deeper(gold, item) for item in given.items)
    return verdict if verdict is None or verdict.correct else wrong(_count(given, None))


def _count(answer: Collection | None, gold: Collection | None) -> str:
    given, wanted = (len(items.items) if items else 1 for items in (answer, gold))
    return f"number of answers: {given} instead of {wanted}"

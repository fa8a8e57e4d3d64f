r"""Ordinary numbers as exact fractions: ``1,234.50``, ``\frac{-3}{4}``, ``1\frac12``, ``2 million``, ``9\%``, ``ten``.

A bounded grammar over ASCII digits reads them without evaluation and without floats, so 0.1 is 1/10 and 2.999 is not 3.
A percentage is its value: 40% is 2/5, and not 40. Numbers in a base, ``2516_8``, are equal if their digits and
bases are; the answer may omit the base that the gold answer names.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

from contrastive_reasoning.tasks.answer.units import split_unit, unit_of

MAX_DIGITS = 60
"""Maximum number of digits before or after the point of an ordinary number."""
MAX_POWER = 400
"""The largest power of ten in ``a \\times 10^b``."""
SCALES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12, "quadrillion": 15}

_DECIMAL = (
    rf"(?:[1-9][0-9]{{0,2}}(?:,[0-9]{{3}}){{1,12}}|[0-9]{{1,3}}(?: [0-9]{{3}}){{1,12}}|[0-9]{{1,{MAX_DIGITS}}})"
    rf"(?:\.[0-9]{{0,{MAX_DIGITS}}})?|\.[0-9]{{1,{MAX_DIGITS}}}"
)
_SIGN = r"(?P<sign>[-+]?) ?"
_POWER = r"10 ?\^ ?(?P<power>-?[0-9]{1,3}|\{ ?-?[0-9]{1,3} ?\})"
_TENS = rf"(?: ?(?:\\times|\\cdot|\*|x) ?{_POWER}|[eE](?P<exponent>[-+]?[0-9]{{1,3}}))?"
_ARGUMENT = rf"\{{ ?[-+]? ?(?:{_DECIMAL}) ?\}}"
_NUMBER = re.compile(rf"{_SIGN}(?P<decimal>{_DECIMAL}){_TENS}")
_TEN = re.compile(rf"{_SIGN}{_POWER}")
_FRACTION = re.compile(
    rf"{_SIGN}(?:(?P<whole>[0-9]{{1,{MAX_DIGITS}}}) ?)?\\frac(?P<top>{_ARGUMENT})(?P<bottom>{_ARGUMENT})"
)
_SLASHED = re.compile(
    rf"{_SIGN}(?:(?P<whole>[0-9]{{1,{MAX_DIGITS}}}) )?(?P<top>{_DECIMAL}) ?/ ?(?P<bottom>-?(?:{_DECIMAL}))"
)
_REPEATING = re.compile(
    rf"{_SIGN}(?P<whole>[0-9]{{0,{MAX_DIGITS}}})\.(?P<once>[0-9]{{0,{MAX_DIGITS}}})"
    rf"\\(?:overline|bar) ?\{{(?P<again>[0-9]{{1,{MAX_DIGITS}}})\}}"
)
_SCALED = re.compile(rf"(?P<value>.*?) ?(?P<scale>{'|'.join(SCALES)})s?(?: (?P<unit>[A-Za-z].*))?")
_PERCENT = re.compile(r"(?P<value>.*?) ?(?:%|percent|percentage|pct)")
_BASED = re.compile(r"(?P<sign>-?) ?(?P<digits>[0-9A-F]{1,60})(?:_\{ ?(?P<base>[0-9]{1,2}|[a-z]{3,8}) ?\})?")
_NAMES = """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
    eighteen nineteen twenty
"""
_NUMBER_NAMES = {name: str(number) for number, name in enumerate(_NAMES.split())}


class Quantity(NamedTuple):
    """A number and the unit after it; the unit is empty if there is none."""

    value: Fraction
    unit: str


class Based(NamedTuple):
    """The digits without leading zeros, and the base, which is empty if none is named."""

    digits: str
    base: str


def read_number(text: str) -> Quantity | None:
    """Reads a text in plain spelling as a number; returns None if it is anything else."""
    text = _NUMBER_NAMES.get(text.lower(), text)
    scaled = _SCALED.fullmatch(text)
    if scaled and (scaled["unit"] is None or unit_of(scaled["unit"])):
        value, unit, power = scaled["value"], unit_of(scaled["unit"]) if scaled["unit"] else "", SCALES[scaled["scale"]]
    else:
        (value, unit), power = split_unit(text), 0
        percent = _PERCENT.fullmatch(value)
        if percent:
            value, power = percent["value"], -2
    number = _read(value)
    return None if number is None else Quantity(number * Fraction(10) ** power, unit)


def read_based(text: str) -> Based | None:
    """Reads a text in plain spelling as a number in a base; returns None if it is anything else."""
    match = _BASED.fullmatch(text)
    if match is None:
        return None
    base = _NUMBER_NAMES.get(match["base"] or "", match["base"] or "")
    largest = int(max(match["digits"]), 16)  # "9" < "A"
    if (largest >= int(base)) if base.isdigit() else match["digits"].isalpha():
        return None  # ABC is a name, and so is A_{7}, which is not a number in its base
    return Based(match["sign"] + (match["digits"].lstrip("0") or "0"), base)


def is_decimal(text: str) -> bool:
    """Whether a number is written with a decimal point."""
    return bool(re.search(r"[0-9]\.[0-9]|(?<![0-9])\.[0-9]", text))


def decimals_of(text: str) -> str:
    """The digits after the first decimal point of a text; empty if there are none."""
    found = re.search(r"\.([0-9]+)", text)
    return found[1] if found else ""


def rounds_to(gold: str, value: Fraction) -> bool:
    """Whether a decimal gold answer, ``180.67``, is the rounding of a value with a repeating decimal, such as 542/3.

    The gold answer must have three or more significant digits and two or more decimals: many values round to ``0.5``.
    """
    number, decimals, rest = read_number(gold), decimals_of(gold), value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    significant = re.sub("[^0-9]", "", gold).lstrip("0")
    if number is None or rest == 1 or len(decimals) < 2 or len(significant) < 3:
        return False
    places = len(decimals) + 2 * ("%" in gold)
    return abs(number.value - value) * 2 * 10**places <= 1


def _read(text: str) -> Fraction | None:
    decimal = _NUMBER.fullmatch(text) or _TEN.fullmatch(text)
    if decimal:
        groups = decimal.groupdict()  # a lone power, 10^5, has neither ``decimal`` nor ``exponent``
        power = int((groups["power"] or groups.get("exponent") or "0").strip("{ }"))
        value = _apply_sign(decimal, _decimal(groups.get("decimal", "1")))
        return value * Fraction(10) ** power if abs(power) <= MAX_POWER else None
    repeating = _REPEATING.fullmatch(text)
    if repeating:
        whole, once, again = repeating["whole"], repeating["once"], repeating["again"]
        tail = Fraction(int(again), (10 ** len(again) - 1) * 10 ** len(once))
        return _apply_sign(repeating, Fraction(int(whole + once or "0"), 10 ** len(once)) + tail)
    fraction = _FRACTION.fullmatch(text) or _SLASHED.fullmatch(text)
    if fraction is None:
        return None
    top, bottom = _decimal(fraction["top"]), _decimal(fraction["bottom"])
    if bottom == 0 or (fraction["whole"] and min(top, bottom) < 0):
        return None
    return _apply_sign(fraction, int(fraction["whole"] or 0) + top / bottom)


def _apply_sign(match: re.Match[str], value: Fraction) -> Fraction:
    return -value if match["sign"] == "-" else value


def _decimal(text: str) -> Fraction:
    """Reads a decimal number, ignoring the braces, blanks and commas that the grammar allows."""
    return Fraction(re.sub(r"[{}, ]", "", text))

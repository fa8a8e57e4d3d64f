r"""The unit after a quantity: ``3 apples``, ``9 cm^2``, ``12\pi`` feet, ``145°``. The comparison of values excludes it.

The question specifies the unit of the answer. A missing unit is therefore allowed, but metres for centimetres are
wrong. Words that change the value (``million``, ``or``) are not units.
"""

from __future__ import annotations

import re

_NAMES = {
    "mm": "millimeter millimetre",
    "cm": "centimeter centimetre",
    "m": "meter metre",
    "km": "kilometer kilometre",
    "in": "inch inche",
    "ft": "foot feet",
    "yd": "yard",
    "mi": "mile",
    "mg": "milligram",
    "g": "gram",
    "kg": "kilogram",
    "oz": "ounce",
    "lb": "pound",
    "ml": "milliliter millilitre",
    "l": "liter litre",
    "s": "sec second",
    "min": "minute",
    "h": "hr hour",
    "mi/h": "mph",
    "km/h": "kph kmh",
    "dollar": "usd buck",
    "cent": "",
    "deg": "degree",
    "°F": "",
    "°C": "",
    "rad": "radian",
    "th": "st nd rd",
    "day": "d",
    "wk": "week",
    "mo": "month",
    "yr": "year",
    "nm": "nanometer",
    "hz": "hertz",
    "khz": "kilohertz",
    "mhz": "megahertz",
    "n": "newton",
    "j": "joule",
    "kj": "kilojoule",
    "w": "watt",
    "kw": "kilowatt",
    "v": "volt",
    "a": "ampere amp",
    "k": "kelvin",
    "pa": "pascal",
    "kpa": "kilopascal",
    "mol": "mole",
    "kb": "kilobyte",
    "mb": "megabyte",
    "gb": "gigabyte",
    "gal": "gallon",
    "pt": "pint",
    "qt": "quart",
    "ha": "hectare",
    "ac": "acre",
}
_CAPITALS = frozenset("njwvak")
"""Units of one capital letter: 5 N is in newtons, 5 n is a product."""
_UNITS = frozenset(part for unit in _NAMES for part in unit.split("/"))
_SAME = ({"deg", "°F"}, {"deg", "°C"})
KNOWN = {name: unit for unit, names in _NAMES.items() for name in (unit, *names.split())}
"""Maps each name in the singular to its unit."""
_OTHER_WORDS = """
    or and to not no if else otherwise maybe plus minus times over divided by mod base pi sqrt sin cos tan cot csc log
    ln exp inf infinity undefined none zero one two three four five six seven eight nine ten eleven twelve twenty
    thirty forty fifty sixty seventy eighty ninety hundred thousand million billion trillion dozen half percent
    percentage pct am pm squared cubed factorial hundreds thousands millions billions trillions dozens percents halves
    than unless except but instead wrong incorrect false
    thirds fourths fifths sixths sevenths eighths ninths tenths hundredths thousandths hundredth thousandth
"""
_NO_UNIT = frozenset(_OTHER_WORDS.split())
_FRACTION_WORD = re.compile(
    r"(?:[a-z]+(?:teen|elf|tie|illion|hundred|thousand)|ten|eleven|twenty|half)ths?|[a-z]+illions?|gross|scores?"
)
"""Further words that change the value: twelfths, twentieths, quadrillions."""
_PARTS = frozenset(("third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"))
"""Words that a unit cannot end with: "2 third graders" has a unit, "2 third" does not."""
_BEHIND = re.compile(
    r"(?P<value>.*?)(?:(?<=[0-9}°])(?P<near>[A-Za-z]+)"
    r"|(?<=[0-9}°A-Za-z)\]]) (?P<far>(?:(?:sq|cu)\. ?)?[A-Za-z]+(?:(?: | ?/ ?)[A-Za-z]+){0,3}))"
    r"(?: ?\^ ?(?:[23]|\{[23]\}))?"
)

_TEMPERATURE = re.compile(r"(?P<value>.*?) ?° ?(?P<scale>[FC])")
_ANY_UNIT = re.compile(
    r"(?i)\b(?:units?|total|altogether|in all|more|less|times|long|wide|high|deep|old|away|each|degrees?)\b"
)
_RATE = re.compile(r" per | ?/ ?")
_ANGLE_OF = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![A-Za-z])")
"""Functions whose degrees belong to the formula and are not a unit."""


def split_unit(text: str) -> tuple[str, str]:
    """The text before the unit, and the unit: the short name of a known one, else its words; empty without a unit."""
    if _ANGLE_OF.search(text):
        return text, ""
    if temperature := _TEMPERATURE.fullmatch(text):
        return temperature["value"], "°" + temperature["scale"]
    match = _BEHIND.fullmatch(text)
    words = match["near"] or match["far"] if match else ""
    unit = unit_of(words, alone=bool(match["far"]), number=_is_bare(match["value"])) if match else ""
    value = match["value"] if match and unit else text
    return (value.rstrip(" °"), unit or "deg") if value.endswith("°") else (value, unit)


def unit_of(words: str, *, alone: bool, number: bool) -> str:
    r"""The unit that the words name, ``mi/h`` for miles per hour; empty if they name none.

    Args:
        words: the words after the value.
        alone: whether a blank precedes them; only a known unit may follow its value without a blank.
        number: whether the value is just a number; ``\pi h`` is a product, ``3 h`` are hours.
    """
    parts = re.findall(r"[A-Za-z]+", words)
    if (
        any(part.lower() in _NO_UNIT or _FRACTION_WORD.fullmatch(part.lower()) for part in parts)
        or parts[-1].lower() in _PARTS
    ):
        return ""
    known = "/".join(filter(None, (_first_known(side) for side in _RATE.split(words, maxsplit=1))))
    shortest = 1 if known and number and alone else 2 if known else 3 if number else 4
    if max(map(len, parts)) < shortest or not (known or alone):
        return ""
    return known or words


def other_unit(a: str, b: str) -> bool:
    """Whether both are units, at least one of them is known, and they differ.

    A price may omit ``per hour``, and degrees may omit F. "units" and words for an extent count as no unit.
    """
    if a and b and ("/" in a) != ("/" in b) and {a, b} & set(_NAMES) - _UNITS:
        return True
    if a and b and a != b and len({a, b} & _UNITS) == 1 and not any(_ANY_UNIT.search(unit) for unit in (a, b)):
        return "/" not in a + b
    pairs = zip(a.split("/"), b.split("/"), strict=False)
    return any(one != other and {one, other} <= _UNITS and {one, other} not in _SAME for one, other in pairs)


def _first_known(words: str) -> str:
    parts = re.findall(r"[A-Za-z]+", words)
    known = (KNOWN[name] for part in parts for name in _singular(part) if name in KNOWN)
    return next((unit for unit in known if unit not in _CAPITALS or unit.upper() in words or len(words) > 1), "")


def _is_bare(value: str) -> bool:
    return not re.search("[A-Za-z]", re.sub(r"\\frac(?![A-Za-z])|\\(?:times|cdot) ?10 ?\^", "", value))


def _singular(word: str) -> tuple[str, str]:
    return word.lower(), word.lower().removesuffix("s")

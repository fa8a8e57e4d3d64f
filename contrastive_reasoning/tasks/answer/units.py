r"""The unit after a quantity: ``3 apples``, ``9 cm^2``, ``12\pi`` feet, ``145°``. The comparison of values excludes it.

The question specifies the unit of the answer. A missing unit is therefore allowed, but metres for centimetres are
wrong, and so is any word that the gold answer does not have. Words that change the value (``million``, ``or``) or deny
it (``is impossible``) are not units.

A unit is read as factors with their powers, in alphabetical order: ``mi h^-1`` for miles per hour, ``cm^2`` for square
centimetres, ``km north``.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache

_PREFIXES = {
    "k": "kilo", "c": "centi", "m": "milli", "d": "deci", "M": "mega", "G": "giga", "μ": "micro", "n": "nano",
    "p": "pico",
}  # fmt: skip
_SCALABLE = {
    "m": "meter metre",
    "g": "gram gramme",
    "s": "second sec",
    "l": "liter litre",
    "mol": "mole",
    "N": "newton",
    "J": "joule",
    "W": "watt",
    "V": "volt",
    "A": "ampere amp",
    "K": "kelvin",
    "Pa": "pascal",
    "Hz": "hertz",
    "Wh": "",
    "eV": "electronvolt",
    "cal": "calorie",
    r"\Omega": "ohm",
}
"""Units that take the prefixes, with their names."""
_NAMES = {
    "in": "inch inche",
    "ft": "foot feet",
    "yd": "yard",
    "mi": "mile",
    "oz": "ounce",
    "lb": "pound",
    "min": "minute",
    "h": "hr hour",
    "dollar": "usd buck",
    "cent": "",
    "euro": "eur",
    "yen": "jpy",
    "rupee": "inr",
    "yuan": "rmb cny",
    "deg": "degree",
    "°F": "",
    "°C": "",
    "rad": "radian",
    "day": "d",
    "wk": "week",
    "mo": "month",
    "yr": "year",
    "kb": "kilobyte",
    "mb": "megabyte",
    "gb": "gigabyte",
    "gal": "gallon",
    "pt": "pint",
    "qt": "quart",
    "ha": "hectare",
    "ac": "acre",
    "unit": "",
}
_RATES = {"mph": "mi/h", "kph": "km/h", "kmh": "km/h"}
_SYMBOLS = dict.fromkeys(prefix + symbol for prefix in ("", *_PREFIXES) for symbol in _SCALABLE)
"""An ordered set."""
_KNOWN = {
    # reversed, so that the first of two symbols that differ only in case wins: mw is mW, and not MW
    **{symbol.lower(): symbol for symbol in reversed(_SYMBOLS) if len(symbol) > 1},
    **{name: symbol for symbol, names in _SCALABLE.items() for name in names.split()},
    **{
        long + name: short + symbol
        for short, long in _PREFIXES.items()
        for symbol, names in _SCALABLE.items()
        for name in names.split()
    },
    **{name: unit for unit, names in _NAMES.items() for name in (unit, *names.split())},
}
"""Maps each name in the singular and in lower case to its unit; symbols in their own case are looked up first."""
_UNITS = frozenset(_KNOWN.values()) | frozenset(_SYMBOLS)
_CURRENCIES = frozenset(("dollar", "cent", "euro", "lb", "yen", "rupee", "yuan"))
_EMPTY_WORDS = """
    a all altogether an apart approximately away both deep each exactly group high in long of old tall the total us wide
"""
_EMPTY = frozenset(_EMPTY_WORDS.split())
"""Words behind a value or a unit that say nothing about it."""
_AFTER_IN = frozenset(("a", "all", "an", "each", "the", "total"))
"""Words before which ``in`` is not inches."""
_POWERS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
_POWERS_BEHIND = {"squared": 2, "cubed": 3}
_OTHER_WORDS = """
    or and to not no if else otherwise maybe plus minus times over divided by mod base pi sqrt sin cos tan cot csc log
    ln exp inf infinity undefined none zero one two three four five six seven eight nine ten eleven twelve twenty
    thirty forty fifty sixty seventy eighty ninety hundred thousand million billion trillion dozen half percent
    percentage pct am pm squared cubed factorial hundreds thousands millions billions trillions dozens percents halves
    than unless except but instead wrong incorrect false
    thirds fourths fifths sixths sevenths eighths ninths tenths hundredths thousandths hundredth thousandth
    is are was were be been being has have had do does did can cannot could would should may might must will shall
    never neither nor without impossible invalid unlikely untrue fails negative below under above opposite
    loss losses deficit debt less fewer short repeating recurring tens
"""
_NO_UNIT = frozenset(_OTHER_WORDS.split())
_FRACTION_WORD = re.compile(
    r"(?:[a-z]+(?:teen|elf|tie|illion|hundred|thousand)|ten|eleven|twenty|half)ths?|[a-z]+illions?|gross|scores?"
)
"""Further words that change the value: twelfths, twentieths, quadrillions."""
_NOT_LAST = re.compile("third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|[a-z]{2,}(?<!e)ed")
"""Words that a unit cannot end with: "2 third graders" has a unit, "2 third" and "2 doubled" have none."""
_WORD = r"(?:\\mu ?)?[A-Za-z]*(?:[A-Za-z]|\\Omega(?![A-Za-z]))(?: ?\^ ?(?:-?[1-9]|\{ ?-?[1-9] ?\}))?"
_BEHIND = re.compile(
    rf"(?P<value>.*?)(?:(?<=[0-9}}°])(?P<near>{_WORD}(?: ?/ ?{_WORD})?)|(?<=[0-9}}°A-Za-z)\]]) "
    rf"(?P<far>(?:(?:sq|cu)\. ?)?{_WORD}(?:(?: ?(?:/|\\cdot(?![A-Za-z])|\*) ?| ){_WORD}){{0,5}}))"
)
_FACTOR = re.compile(rf"/|{_WORD}")
_TEMPERATURE = re.compile(r"(?P<value>.*?) ?° ?(?P<scale>[FC])")
_ANGLE_OF = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![A-Za-z])")
"""Functions whose degrees belong to the formula and are not a unit."""


@lru_cache(maxsize=4096)
def split_unit(text: str) -> tuple[str, str]:
    """The text before the unit, and the unit as its factors; empty without a unit."""
    if _ANGLE_OF.search(text):
        return text, ""
    if temperature := _TEMPERATURE.fullmatch(text):
        return temperature["value"], "°" + temperature["scale"]
    match = _BEHIND.fullmatch(text)
    words = match["near"] or match["far"] if match else ""
    unit = unit_of(words, alone=bool(match["far"]), number=_is_bare(match["value"])) if match else ""
    value = match["value"] if match and unit else text
    return (value.rstrip(" °"), unit or "deg") if value.endswith("°") else (value, unit)


def unit_of(words: str, *, alone: bool = True, number: bool = True) -> str:
    r"""The unit that the words name, as its factors: ``unit`` for empty words; empty if the words are no unit.

    Args:
        words: the words after the value.
        alone: whether a blank precedes them; only a known unit may follow its value without a blank.
        number: whether the value is just a number; ``\pi h`` is a product, ``3 h`` are hours.
    """
    factors = [_factor(token) for token in _FACTOR.findall(re.sub(r"\\cdot(?![A-Za-z])", " ", words))]
    powers: Counter[str] = Counter()
    sign, raised, last = 1, 1, ""
    for (word, power), (following, _) in zip(factors, [*factors[1:], ("", 1)], strict=True):
        lower = word.lower()
        if lower in ("/", "per"):
            sign = -1
        elif lower in _POWERS and following:
            raised = _POWERS[lower]
        elif lower in _POWERS_BEHIND and last in _UNITS:
            powers[last] *= _POWERS_BEHIND[lower]
        elif lower in _EMPTY and alone and word not in _SYMBOLS and (lower != "in" or powers or following in _AFTER_IN):
            # a^2 is a variable, and so is the a of "a h"; that of "9 a day" is not
            if power != 1 or (len(word) < 3 and not (powers or (number and len(following) > 1))):
                return ""
        else:
            last = _name(word)
            known = last in _UNITS or last in _RATES
            shortest = (1 if number and alone else 2) if known else (3 if number else 4) if alone else 99
            if len(word) < shortest or lower in _NO_UNIT or _FRACTION_WORD.fullmatch(lower):
                return ""
            for part in _RATES.get(last, last).split("/"):
                powers[part] += sign * power * raised
                sign = -sign if "/" in _RATES.get(last, "") else sign
            raised = 1
    end = factors[-1][0].lower() if factors else ""
    if _NOT_LAST.fullmatch(end) and end not in _POWERS_BEHIND:
        return ""
    return " ".join(name if power == 1 else f"{name}^{power}" for name, power in sorted(powers.items())) or "unit"


def other_unit(gold: str, answer: str) -> bool:
    """Whether both have a unit, and that of the answer has a word that the gold answer does not have, or another unit.

    A price may omit ``per hour``, and degrees may omit F. "units" stands for any unit of the same power.
    """
    wanted, given = set(gold.split()), set(answer.split())
    if not wanted or not given or any({"deg", scale} == wanted | given for scale in ("°F", "°C")):
        return False
    if not all(_is_known(factor) for factor in given - wanted):
        return True
    wanted, given = ({factor for factor in factors if _is_known(factor)} for factors in (wanted, given))
    few, many = sorted((wanted, given), key=len)
    if any(factor.startswith("unit") for factor in wanted | given):
        return len(many) > 1 or len({factor.partition("^")[2] for factor in wanted | given}) > 1
    if few and few <= _CURRENCIES:
        many = {factor for factor in many if "^-" not in factor}
    return few != many


def _factor(token: str) -> tuple[str, int]:
    word, _, power = token.partition("^")
    return word.strip().replace("\\mu ", "μ").replace("\\mu", "μ"), int(power.strip(" {}") or 1)


def _name(word: str) -> str:
    """The unit with this symbol or name; any other word in lower case and in the singular."""
    if word in _SYMBOLS:
        return word
    lower = word.lower()
    singular = lower.removesuffix("s") if len(lower) > 2 else lower
    if len(word) == 1 and word != lower:
        return word.replace("L", "l")
    return _KNOWN.get(lower) or _KNOWN.get(singular) or singular


def _is_known(factor: str) -> bool:
    return factor.partition("^")[0] in _UNITS


def _is_bare(value: str) -> bool:
    return not re.search("[A-Za-z]", re.sub(r"\\frac(?![A-Za-z])|\\(?:times|cdot) ?10 ?\^", "", value))

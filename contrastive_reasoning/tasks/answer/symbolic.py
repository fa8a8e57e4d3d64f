r"""Whether two formulas mean the same, by math-verify. No other module of this package imports it, or sympy.

Its own time-outs are off, because they need the alarm signal of the main thread; the budget of steps around a call and
the wall clock of the pool stand in for them. A step is the call of a function. Only formulas that passed
``limits.objection`` may come here. The libraries are imported at the first call: most answers are numbers.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, TypeVar

from contrastive_reasoning.tasks.answer.number import read_number

T = TypeVar("T")
PLACES = 6
"""Decimals that are compared where one side is a decimal number and the other is not a number."""
MAX_PLACES = 40
_DEGREES = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?°")
_TENS = re.compile(r"(?<=[0-9])[eE]([-+]?[0-9]{1,3})(?![0-9])")
_COMMANDS = re.compile(r"\\mathbb ?\{? ?[A-Z]|\\[A-Za-z]+")
_SEPARATE = re.compile(rf"({_COMMANDS.pattern})|[^\\]+")
_SPARE = "abchjklmnopqrstuvwxyz"
"""Letters that mean nothing by themselves, as d, e, f, g and i may."""
_POINTS = ("0.7310585786", "1.3169578969")
"""Values for the variables at which two different formulas differ; all variables take the one, then spread from it."""
FACTORS = ("frac", "dfrac", "tfrac", "sqrt", "binom", "dbinom", "tbinom")
"""Commands that make a number of the groups behind them."""
TIMES = r" \cdot "
_NEXT_FACTOR = re.compile(r"(?:\\left *)?\(|\\(?P<command>" + "|".join(FACTORS) + r")(?![a-zA-Z])|(?P<digit>[0-9])")
_DIGITS_BEFORE = re.compile(r"(?P<before>.?)(?<![0-9.])[0-9]+(?:\.[0-9]+)?$", re.S)
_LAST_COMMAND = re.compile(r"\\([a-zA-Z]+) *$")
_OPENING = {")": "(", "}": "{"}


class GoldUnread(ValueError):
    """The gold answer cannot be read, so no answer can be compared with it."""


class OutOfSteps(BaseException):
    """The budget is spent. No ``Exception``: code in between that catches those does not swallow it."""


def load() -> None:
    """Import the libraries now rather than at the first question."""
    _library()


def same_formula(gold: str, answer: str) -> bool | None:
    """Whether two formulas in their plain spelling are equal; None if the answer cannot be read.

    Raises:
        GoldUnread: if the gold answer cannot be read.
    """
    wanted, given = (parsed(text) for text in in_one_case(gold, answer))
    if wanted is None:
        raise GoldUnread(gold)
    if given is None:
        return None
    if _differ(wanted, given):
        return False
    places = _places(gold)
    return _library().verify(wanted, given, float_rounding=places, allow_set_relation_comp=True, timeout_seconds=None)


def in_one_case(*texts: str) -> tuple[str, ...]:
    r"""The texts with another letter for each capital whose small letter they have, too.

    math-verify takes ``R`` for ``r``, so that ``\frac{R}{r}`` would be ``\frac{r}{R}``, and 1.
    """
    used = {letter for text in texts for letter in _COMMANDS.sub("", text) if letter.isalpha()}
    both = sorted(letter for letter in used if letter.isupper() and letter.lower() in used)
    free = (letter for letter in _SPARE if not {letter, letter.upper()} & used)
    names = str.maketrans(dict(zip(both, free, strict=False)))
    return tuple(_SEPARATE.sub(lambda part: part[1] or part[0].translate(names), text) for text in texts)


@lru_cache(maxsize=2048)
def parsed(text: str) -> Any | None:
    """The sympy object of a formula, or None."""
    library = _library()
    config = library.LatexExtractionConfig(
        boxed_match_priority=0, try_extract_without_anchor=False, normalization_config=_as_it_is()
    )
    found = library.parse(
        rf"\boxed{{{_as_latex(text)}}}",
        extraction_config=[config],
        fallback_mode="no_fallback",
        extraction_mode="first_match",
        parsing_timeout=None,  # pyright: ignore[reportArgumentType]
    )
    return found[0] if found else None


def with_signs(text: str) -> str:
    r"""The text with ``\cdot`` between factors that stand side by side: ``2(3)``, ``\binom{5}{2}\binom{4}{1}``.

    math-verify reads a whole number and a positive number behind it as a mixed number, and adds them: 5 and 14. Only
    digits directly in front of a fraction are one.
    """
    places = [found.start() for found in _NEXT_FACTOR.finditer(text) if _is_product(text[: found.start()], found)]
    pieces = (text[first:last] for first, last in zip([0, *places], [*places, len(text)], strict=True))
    return TIMES.join(pieces)


def within(steps: int, compute: Callable[[], T]) -> T:
    """``compute()``, stopped after ``steps`` calls of Python functions in this thread.

    Unlike an alarm it needs no signal, so it works in every thread; and it stops the same work on a slow and on a busy
    machine.

    Raises:
        OutOfSteps: if the budget did not suffice.
    """
    budget = _budget(steps)
    tracer = sys.gettrace()
    # Python calls the tracer at each call of a function; None: the lines within need no tracing
    sys.settrace(lambda frame, event, argument: next(budget))
    try:
        return compute()
    finally:
        sys.settrace(tracer)


@lru_cache(maxsize=1)
def _library() -> Any:
    import math_verify

    # it warns once that its time-outs are off
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    return math_verify


@lru_cache(maxsize=1)
def _as_it_is() -> Any:
    """No rewriting but for the box: it takes the ``c`` of ``a + b + c`` for a unit, and ``or`` for a comma."""
    from latex2sympy2_extended.math_normalization import NormalizationConfig

    return NormalizationConfig(basic_latex=False, units=False, malformed_operators=False, nits=False, boxed="last")


def _as_latex(text: str) -> str:
    """As math-verify reads it: numbers without ``e``, commas and units, degrees in radians."""
    number = read_number(text)
    if number is None:
        text = _TENS.sub(r" \\cdot 10^{\1}", _DEGREES.sub(r"\\frac{\1 \\pi}{180}", text))
        return with_signs(text.replace("%", r"\%").replace("**", "^"))
    value = number.value
    scaled = value * 10**MAX_PLACES
    if value.denominator == 1:
        return str(value.numerator)
    if scaled.denominator == 1:
        digits = f"{abs(scaled.numerator):0{MAX_PLACES + 1}d}"
        return f"{'-' * (value < 0)}{digits[:-MAX_PLACES]}.{digits[-MAX_PLACES:].rstrip('0')}"
    return rf"\frac{{{value.numerator}}}{{{value.denominator}}}"


def _places(gold: str) -> int:
    """Six decimals, and for a small gold number so many that six of its digits count."""
    number = read_number(gold)
    places = PLACES
    while number is not None and number.value != 0 and abs(number.value) * 10 ** (places - PLACES + 1) < 1:
        places += 1
    return min(places, MAX_PLACES)


def _differ(gold: Any, answer: Any) -> bool:
    """Whether two expressions clearly differ at a point: quick, where a proof that they do takes long."""
    from sympy import Expr, Float

    if not (isinstance(gold, Expr) and isinstance(answer, Expr)) or gold.free_symbols != answer.free_symbols:
        return False
    names = sorted(gold.free_symbols, key=str)
    for point in _POINTS if names else ("0",):
        values: Any = {name: Float(point, 30) + index * Float("0.2718281828", 30) for index, name in enumerate(names)}
        try:
            a, b = complex(gold.evalf(20, subs=values)), complex(answer.evalf(20, subs=values))
            # next to 1/2^98, too, twice as much is another number; but where zero is meant, 1e-30 is zero
            least = 0.0 if gold.is_zero is False else 1.0
            if abs(a - b) > 1e-5 * max(least, abs(a), abs(b)):
                return True
        except (TypeError, ValueError, ArithmeticError):
            return False
    return False


def _is_product(before: str, following: re.Match[str]) -> bool:
    before = before.removesuffix(r"\left").rstrip()
    if before.endswith((")", "}")):
        return _ends_with_factor(before)
    if following["digit"] or (following["command"] or "").endswith("frac"):
        return False  # a digit of the same number, or a mixed number
    digits = _DIGITS_BEFORE.search(before)
    return digits is not None and _is_factor_behind(before[: digits.start() + len(digits["before"])])


def _ends_with_factor(before: str) -> bool:
    """Whether the group at the end of ``before`` is a factor: no exponent, index, argument, pair or interval."""
    rest = _without_group(before)
    if rest is None:
        return False
    if before.endswith(")"):
        group = before[len(rest) :]
        return "," not in group and not _LAST_COMMAND.search(rest.removesuffix(r"\left").rstrip())
    if rest.endswith(("^", "_")):
        return _is_factor_behind(rest)
    while rest.endswith(("}", "]")) and (shorter := _without_group(rest)) is not None:
        rest = shorter.rstrip()
    command = _LAST_COMMAND.search(rest)
    return command is None or command[1] in FACTORS


def _is_factor_behind(before: str) -> bool:
    """Whether what follows ``before`` is a factor: an exponent is part of one where its base is a number."""
    return before[:-1].rstrip()[-1:].isdigit() if before.endswith("^") else not before.endswith("_")


def _without_group(text: str) -> str | None:
    """What stands before the bracket that the last one closes; None where there is no such bracket."""
    closing = text[-1]
    opening = _OPENING.get(closing, "[")
    depth = 0
    for place in range(len(text) - 1, -1, -1):
        depth += (text[place] == closing) - (text[place] == opening)
        if depth == 0:
            return text[:place]
    return None


def _budget(steps: int) -> Iterator[None]:
    for _ in range(steps):
        yield
    raise OutOfSteps

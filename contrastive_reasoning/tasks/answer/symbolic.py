r"""Whether two formulas are equal, by math-verify. No other module of this package imports math-verify or sympy.

Its own time-outs are off, because they need the alarm signal of the main thread. They are replaced by a budget of steps
for each call and the wall-clock limit of the pool. A step is one function call. The formulas must have passed
``limits.objection``. The libraries are imported on the first call, because most answers are numbers.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from math import log10
from typing import Any, TypeVar

from contrastive_reasoning.tasks.answer.number import decimals_of, is_decimal, read_number

T = TypeVar("T")
PLACES = 6
"""Decimal places that are compared if one side is a decimal number and the other is not a number."""
MAX_PLACES = 40
_DEGREES = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?°")
_DECIMAL = re.compile(r"(?<![0-9.])[0-9]*\.[0-9]{1,60}(?![0-9.]| ?\\(?:overline|bar))")
_TENS = re.compile(r"(?<=[0-9])[eE]([-+]?[0-9]{1,3})(?![0-9])")
_COMMANDS = re.compile(r"\\mathbb ?\{? ?[A-Z]|\\[A-Za-z]+")
_SEPARATE = re.compile(rf"({_COMMANDS.pattern})|[^\\]+")
_SPARE = "abchjklmnopqrstuvwxyz"
"""Letters without a meaning of their own, unlike d, e, f, g and i."""
POINTS = (
    ("731/1000", "1873/10000", "5219/10000"),
    ("317/1000", "8419/10000", "2741/10000"),
    ("13169/10000", "27183/10000", "16487/10000"),
    ("-4713/1000", "23571/10000", "-8127/10000"),
    ("3517/1000", "-18127/10000", "7389/1000"),
)
"""Values for the variables, in order: between 0 and 1, above 1, and with other signs."""
STEPPED_POINTS = (
    *POINTS,
    *((f"{n}", f"{n + 3}", f"{2 * n + 1}") for n in (1, 2, 3, 4, 5, 6, 8, 15, 16, 24, 99, 100, 101, 1000, 1005, 9999)),
    *((f"{n}999999999999/1000000000000", f"{n + 2}/2", f"{n}1/10") for n in (0, 1, 2, 8, 99)),
)
"""Points for step functions such as the floor: also whole numbers and values just below them."""
WHOLE = frozenset("klmnNKM")
"""Letters that stand for whole numbers in formulas with step functions."""
DIGITS, MAX_DIGITS = 60, 3_000
"""Minimum and maximum number of digits evaluated; a formula that needs more equals only an identical one."""
LOST = 20
"""Digits that an evaluation may lose: two values are equal if all other digits agree."""
FACTORS = ("frac", "dfrac", "tfrac", "sqrt", "binom", "dbinom", "tbinom")
"""Commands that form a number from the groups after them."""
_NEXT_FACTOR = re.compile(r"(?:\\left *)?\(|\\(?P<command>" + "|".join(FACTORS) + r")(?![a-zA-Z])|(?P<digit>[0-9])")
_DIGITS_BEFORE = re.compile(r"(?P<before>.?)(?<![0-9.])[0-9]+(?:\.[0-9]+)?$", re.S)
_LAST_COMMAND = re.compile(r"\\([a-zA-Z]+) *$")
_OPENING = {")": "(", "}": "{"}


class GoldUnread(ValueError):
    """Raised if the gold answer cannot be read, so that no answer can be compared with it."""


class OutOfSteps(BaseException):
    """Raised if the budget is exceeded. It is not an ``Exception``, so that library code does not catch it."""


def same_formula(gold: str, answer: str) -> bool | None:
    """Whether two formulas in plain spelling are equal; None if the answer cannot be read.

    Decimals are read as exact fractions. Only rounded values are compared with a tolerance (``_tolerance``).

    Raises:
        GoldUnread: if the gold answer cannot be read.
    """
    from sympy import Equality, Expr
    from sympy.core.relational import Relational
    from sympy.logic.boolalg import Boolean

    wanted, given = (parse_formula(text) for text in in_one_case(gold, answer))
    if wanted is None:
        raise GoldUnread(gold)
    if given is None:
        return None
    if isinstance(wanted, Expr) and isinstance(given, Expr):
        return _same_expression(wanted, given, _tolerance(gold, answer, wanted))
    if isinstance(wanted, Equality) and isinstance(given, Equality):
        return _same_equation(wanted, given)
    if isinstance(wanted, Relational) and isinstance(given, Relational) and _same_inequality(wanted, given):
        return True
    wanted, given = (_solutions(one) if isinstance(one, Boolean) else one for one in (wanted, given))
    if wanted is None or given is None:
        return False
    return load().verify(wanted, given, float_rounding=PLACES, allow_set_relation_comp=True, timeout_seconds=None)


def in_one_case(*texts: str) -> tuple[str, ...]:
    r"""Replaces each capital letter that also occurs in lower case by an unused letter, and ``d``.

    math-verify reads ``R`` as ``r``, so that ``\frac{R}{r}`` would equal ``\frac{r}{R}``, and 1. It reads ``dc`` as a
    differential.
    """
    used = {letter for text in texts for letter in _COMMANDS.sub("", text) if letter.isalpha()}
    both = sorted(letter for letter in used if letter == "d" or (letter.isupper() and letter.lower() in used))
    free = (letter for letter in _SPARE if not {letter, letter.upper()} & used)
    names = str.maketrans(dict(zip(both, free, strict=False)))
    return tuple(_SEPARATE.sub(lambda part: part[1] or part[0].translate(names), text) for text in texts)


@lru_cache(maxsize=2048)
def parse_formula(text: str) -> Any | None:
    """The sympy object of a formula, or None if it cannot be read."""
    library = load()
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
    r"""Inserts ``\cdot`` between adjacent factors: ``2(3)``, ``\binom{5}{2}\binom{4}{1}``.

    math-verify reads a whole number and a positive number after it as a mixed number, and adds them: 5 and 14. Only
    digits directly before a fraction are a mixed number.
    """
    places = [found.start() for found in _NEXT_FACTOR.finditer(text) if _is_product(text[: found.start()], found)]
    pieces = (text[first:last] for first, last in zip([0, *places], [*places, len(text)], strict=True))
    return r" \cdot ".join(pieces)


def within(steps: int, compute: Callable[[], T]) -> T:
    """Runs ``compute()`` and stops it after ``steps`` calls of Python functions in this thread.

    Unlike an alarm, it needs no signal and works in every thread. It stops at the same point on a slow or busy machine.

    Raises:
        OutOfSteps: if the budget is exceeded.
    """
    budget = _budget(steps)
    tracer = sys.gettrace()
    # Python calls the tracer at each function call; it returns None, so that lines within are not traced
    sys.settrace(lambda frame, event, argument: next(budget))
    try:
        return compute()
    finally:
        sys.settrace(tracer)


@lru_cache(maxsize=1)
def load() -> Any:
    """Imports math-verify and returns it. A worker calls it early, so that its first question takes no longer."""
    import math_verify

    # suppresses its warning that the time-outs are off
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    return math_verify


@lru_cache(maxsize=1)
def _as_it_is() -> Any:
    """Disables all rewriting except for the box: it would read ``c`` in ``a + b + c`` as a unit, ``or`` as a comma."""
    from latex2sympy2_extended.math_normalization import NormalizationConfig

    return NormalizationConfig(basic_latex=False, units=False, malformed_operators=False, nits=False, boxed="last")


def _as_latex(text: str) -> str:
    """Converts a text for math-verify: numbers without ``e``, commas and units, degrees in radians."""
    number = read_number(text)
    if number is None:
        text = _TENS.sub(r" \\cdot 10^{\1}", _DEGREES.sub(r"\\frac{\1 \\pi}{180}", text))
        return with_signs(_DECIMAL.sub(_as_fraction, text.replace("%", r"\%").replace("**", "^")))
    value = number.value
    sign = "-" * (value < 0)
    return str(value) if value.denominator == 1 else rf"{sign}\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


def _tolerance(gold: str, answer: str, wanted: Any) -> Any:
    """The tolerance between a rounded and an exact value; zero if neither value is rounded.

    A decimal gold number counts to six decimal places, a small one to six of its digits. If the exact gold value is
    irrational, such as a root, a decimal answer with six or more places is compared to six places, or to a millionth of
    a value below 1.
    """
    from sympy import Rational

    number = read_number(gold)
    if number is not None and is_decimal(gold):
        places = PLACES
        while number.value != 0 and abs(number.value) * 10 ** (places - PLACES + 1) < 1 and places < MAX_PLACES:
            places += 1
        return Rational(1, 10**places)
    if read_number(answer) is None or len(decimals_of(answer)) < PLACES or wanted.doit().is_Rational:
        return Rational(0)
    return Rational(1, 10**PLACES) * min(1, abs(wanted.evalf()))


def _same_expression(gold: Any, answer: Any, tolerance: Any) -> bool:
    """Whether two expressions have the same values at the points where both are real, or if none, where complex.

    Different formulas that a policy can plausibly write do not agree to so many digits at these points.
    """
    from sympy import Rational, nan, zoo

    if gold.has(nan, zoo) or answer.has(nan, zoo):
        return False
    if gold == answer:
        return True
    if not {str(name) for name in gold.free_symbols ^ answer.free_symbols} <= {"i"}:
        return False
    names = sorted(gold.free_symbols | answer.free_symbols, key=str)
    if not names and (exact := _rationals(gold, answer)) is not None:
        return abs(exact[0] - exact[1]) <= tolerance
    digits = _digits(gold, answer)
    if digits > MAX_DIGITS:
        return False
    nearly = Rational(1, 10 ** (digits - LOST))
    complex_pairs, real_pairs = [], []
    for point in _points(names, gold, answer):
        pair: list[Any] = [_value_at(expression, names, point, digits) for expression in (gold, answer)]
        if None not in pair:
            (real_pairs if all(value.is_real for value in pair) else complex_pairs).append(pair)
    pairs = real_pairs or complex_pairs
    return bool(pairs) and all(abs(a - b) <= max(tolerance, nearly * max(abs(a), abs(b))) for a, b in pairs)


def _points(names: Sequence[Any], *expressions: Any) -> Sequence[Sequence[str]]:
    """The points of comparison: one for formulas without variables, whole numbers for steps in whole variables."""
    from sympy import Mod, ceiling, floor

    if not names:
        return POINTS[:1]
    if not any(expression.has(floor, ceiling, Mod) for expression in expressions):
        return POINTS
    whole = all(str(name) in WHOLE for name in names)
    return [point for point in STEPPED_POINTS if point[0].isdigit()] if whole else STEPPED_POINTS


def _digits(*expressions: Any) -> int:
    """Number of digits that resolves differences of the magnitude of the numbers in the expressions."""
    from sympy import Pow, Rational, exp, preorder_traversal

    sizes = []
    for expression in expressions:
        size = 0.0
        parts: Iterator[Any] = preorder_traversal(expression)
        for part in parts:
            if isinstance(part, Rational):
                size += log10(max(abs(part.p), part.q))
            elif isinstance(part, Pow | exp) and (power := part.as_base_exp()[1].doit()).is_Rational:
                base: Any = part.as_base_exp()[0].doit()
                size += abs(float(power)) * (log10(max(abs(base.p), base.q)) if base.is_Rational else 1)
        sizes.append(size)
    return DIGITS + int(max(sizes))


def _value_at(expression: Any, names: Sequence[Any], point: Sequence[str], digits: int) -> Any | None:
    """The value of an expression at a point; None if it has no finite value there."""
    from sympy import I, Rational, nan, oo, zoo

    places = {
        name: I if str(name) == "i" else Rational(point[index % len(point)]) + index // len(point)
        for index, name in enumerate(names)
    }
    try:
        value = expression.xreplace(places).evalf(digits, maxn=2 * digits)
        return value if value.is_number and not value.has(nan, oo, zoo) and value.is_finite else None
    except (TypeError, ValueError, ArithmeticError, AttributeError):
        return None


def _rationals(*expressions: Any) -> tuple[Any, ...] | None:
    """The exact values of expressions that are fractions; None if one is not a fraction."""
    exact = tuple(expression.doit() for expression in expressions)
    return exact if all(value.is_Rational for value in exact) else None


def _same_equation(gold: Any, answer: Any) -> bool:
    r"""Whether two equations are the same up to a factor: ``y = -3x - 3`` is ``3x + y + 3 = 0``.

    An identity, which holds for all values, is the same only if its sides are.
    """
    from sympy import Expr, together

    if not all(isinstance(side, Expr) for side in (*gold.args, *answer.args)):
        return False
    gold, answer = _without_functions(gold, answer)
    if _same_sides(gold, answer):
        return True
    wholes: list[Any] = [together(equation.lhs - equation.rhs) for equation in (gold, answer)]
    differences = [whole.as_numer_denom()[0] for whole in wholes]
    if not all(difference.free_symbols for difference in differences):
        return False  # x + 1 = x and x + 2 = x differ, just as 0 = 1 and 0 = 2 do
    return _constant_ratio(*differences) is not None


def _same_sides(gold: Any, answer: Any) -> bool:
    pairs = ((answer.lhs, answer.rhs), (answer.rhs, answer.lhs))
    return any(_same_expression(gold.lhs, a, 0) and _same_expression(gold.rhs, b, 0) for a, b in pairs)


def _constant_ratio(first: Any, second: Any) -> Any | None:
    """The constant ratio of two expressions at all points; None if there is none, or a value is zero."""
    from sympy import Rational

    if first.free_symbols != second.free_symbols:
        return None
    names, ratios, digits = sorted(first.free_symbols, key=str), [], _digits(first, second)
    if digits > MAX_DIGITS:
        return None
    nearly = Rational(1, 10 ** (digits - LOST))
    for point in POINTS:
        a, b = (_value_at(expression, names, point, digits) for expression in (first, second))
        if a is not None and b is not None:
            if abs(a) < nearly or abs(b) < nearly:
                return None
            ratios.append(a / b)
    same = len(ratios) > 1 and all(abs(ratio - ratios[0]) <= nearly * abs(ratios[0]) for ratio in ratios)
    return ratios[0] if same else None


def _same_inequality(gold: Any, answer: Any) -> bool:
    """Whether two inequalities are the same up to a factor and the sides of their terms."""
    from sympy import Expr, GreaterThan, LessThan, StrictGreaterThan, StrictLessThan

    if not all(isinstance(side, Expr) for side in (*gold.args, *answer.args)):
        return False
    kinds = {StrictLessThan: (1, True), LessThan: (1, False), StrictGreaterThan: (-1, True), GreaterThan: (-1, False)}
    if type(gold) not in kinds or type(answer) not in kinds or kinds[type(gold)][1] != kinds[type(answer)][1]:
        return False
    ratio = _constant_ratio(*((one.lhs - one.rhs) * kinds[type(one)][0] for one in _without_functions(gold, answer)))
    return ratio is not None and bool(ratio.is_positive)


def _solutions(relation: Any) -> Any | None:
    """The set of real solutions of an inequality in one variable; None if it is empty, all reals, or not computable."""
    from sympy import Reals

    try:
        found = relation.as_set()
    except (NotImplementedError, TypeError, ValueError, AttributeError):
        return None
    return None if found.is_empty or found == Reals else found


def _without_functions(*relations: Any) -> tuple[Any, ...]:
    """Replaces each value of an undefined function, such as ``f(2)``, by a variable."""
    from sympy import Dummy
    from sympy.core.function import AppliedUndef

    values = {value for relation in relations for value in relation.atoms(AppliedUndef)}
    names = {value: Dummy(str(value)) for value in sorted(values, key=str)}
    return tuple(relation.xreplace(names) for relation in relations)


def _as_fraction(decimal: re.Match[str]) -> str:
    value = Fraction(decimal[0])
    return rf"\frac{{{value.numerator}}}{{{value.denominator}}}"


def _is_product(before: str, following: re.Match[str]) -> bool:
    before = before.removesuffix(r"\left").rstrip()
    if before.endswith((")", "}")):
        return _ends_with_factor(before)
    if following["digit"] or (following["command"] or "").endswith("frac"):
        return False  # a digit of the same number, or a mixed number
    digits = _DIGITS_BEFORE.search(before)
    return digits is not None and _is_factor_behind(before[: digits.start() + len(digits["before"])])


def _ends_with_factor(before: str) -> bool:
    """Whether the group at the end of ``before`` is a factor, not an exponent, index, argument, pair or interval."""
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
    """Whether the text after ``before`` is part of a factor; an exponent is, if its base is a number."""
    return before[:-1].rstrip()[-1:].isdigit() if before.endswith("^") else not before.endswith("_")


def _without_group(text: str) -> str | None:
    """The text before the opening bracket that matches the last character; None if there is none."""
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

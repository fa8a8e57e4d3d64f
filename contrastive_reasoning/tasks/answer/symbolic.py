r"""Whether two formulas mean the same, by math-verify. No other module of this package imports it, or sympy.

Its own time-outs are off, because they need the alarm signal of the main thread; the budget of steps around a call and
the wall clock of the pool stand in for them. A step is the call of a function. Only formulas that passed
``limits.objection`` may come here. The libraries are imported at the first call: most answers are numbers.
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

from contrastive_reasoning.tasks.answer.number import is_decimal, read_number

T = TypeVar("T")
PLACES = 6
"""Decimals that are compared where one side is a decimal number and the other is not a number."""
MAX_PLACES = 40
_DEGREES = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?°")
_DECIMAL = re.compile(r"(?<![0-9.])[0-9]+\.[0-9]{1,60}(?![0-9.]| ?\\(?:overline|bar))")
_TENS = re.compile(r"(?<=[0-9])[eE]([-+]?[0-9]{1,3})(?![0-9])")
_COMMANDS = re.compile(r"\\mathbb ?\{? ?[A-Z]|\\[A-Za-z]+")
_SEPARATE = re.compile(rf"({_COMMANDS.pattern})|[^\\]+")
_SPARE = "abchjklmnopqrstuvwxyz"
"""Letters that mean nothing by themselves, as d, e, f, g and i may."""
POINTS = (
    ("731/1000", "1873/10000", "5219/10000"),
    ("317/1000", "8419/10000", "2741/10000"),
    ("13169/10000", "27183/10000", "16487/10000"),
    ("-4713/1000", "23571/10000", "-8127/10000"),
    ("3517/1000", "-18127/10000", "7389/1000"),
)
"""Values for the variables, in turn: between 0 and 1, above 1, and with other signs."""
STEPPED_POINTS = (
    *POINTS,
    *((f"{n}", f"{n + 3}", f"{2 * n + 1}") for n in (1, 2, 3, 4, 5, 6, 8, 15, 16, 24, 99, 100, 101, 1000, 1005, 9999)),
    *((f"{n}999999999999/1000000000000", f"{n + 2}/2", f"{n}1/10") for n in (0, 1, 2, 8, 99)),
)
"""For steps, such as those of the floor, also whole numbers and what is just below them."""
WHOLE = frozenset("klmnNKM")
"""Letters that stand for whole numbers where a formula has steps."""
DIGITS, MAX_DIGITS = 60, 3_000
"""At least and at most so many are worked out; formulas that would need more are equal to none but themselves."""
LOST = 20
"""Digits that working a value out may lose: values are the same if they have all others in common."""
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

    Decimals are read as exact fractions. Only a rounded value is compared with a tolerance (``_tolerance``).

    Raises:
        GoldUnread: if the gold answer cannot be read.
    """
    from sympy import Equality, Expr
    from sympy.core.relational import Relational
    from sympy.logic.boolalg import Boolean

    wanted, given = (parsed(text) for text in in_one_case(gold, answer))
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
    return _library().verify(wanted, given, float_rounding=PLACES, allow_set_relation_comp=True, timeout_seconds=None)


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
        return with_signs(_DECIMAL.sub(_as_fraction, text.replace("%", r"\%").replace("**", "^")))
    value = number.value
    sign = "-" * (value < 0)
    return str(value) if value.denominator == 1 else rf"{sign}\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


def _tolerance(gold: str, answer: str, wanted: Any) -> Any:
    """How far a rounded value may be from an exact one; zero where none of the two is rounded.

    A decimal gold number counts to six places, a small one to six of its digits. To an exact gold value that no
    decimal number can be, such as a root, a decimal answer of six places or more is right.
    """
    from sympy import Rational

    number = read_number(gold)
    if number is not None and is_decimal(gold):
        places = PLACES
        while number.value != 0 and abs(number.value) * 10 ** (places - PLACES + 1) < 1 and places < MAX_PLACES:
            places += 1
        return Rational(1, 10**places)
    written = re.search(r"\.([0-9]+)", answer)
    if read_number(answer) is None or written is None or len(written[1]) < PLACES or wanted.doit().is_Rational:
        return Rational(0)
    return Rational(1, 10**PLACES)


def _same_expression(gold: Any, answer: Any, tolerance: Any) -> bool:
    """Whether two expressions have the same values, at points where both are real; else where they are complex.

    Two different formulas agree to so many digits at none of the points that a policy could know of.
    """
    from sympy import Rational, nan, zoo

    if gold.has(nan, zoo) or answer.has(nan, zoo):
        return False
    if gold == answer:
        return True
    if gold.free_symbols != answer.free_symbols and not {
        str(name) for name in gold.free_symbols ^ answer.free_symbols
    } <= {"i"}:
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
    """Where formulas are compared: anywhere for one without variables, at whole numbers for steps of whole numbers."""
    from sympy import Mod, ceiling, floor

    if not names:
        return POINTS[:1]
    if not any(expression.has(floor, ceiling, Mod) for expression in expressions):
        return POINTS
    whole = all(str(name) in WHOLE for name in names)
    return [point for point in STEPPED_POINTS if point[0].isdigit()] if whole else STEPPED_POINTS


def _digits(*expressions: Any) -> int:
    """Digits in which a difference as small or as large as the numbers in the expressions is seen."""
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
    """The number that an expression is at a point; None where it has none."""
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
    """The exact values of expressions that are fractions; None where one is none."""
    exact = tuple(expression.doit() for expression in expressions)
    return exact if all(value.is_Rational for value in exact) else None


def _same_equation(gold: Any, answer: Any) -> bool:
    r"""Whether one equation is the other but for a factor: ``y = -3x - 3`` is ``3x + y + 3 = 0``.

    An identity, which is zero for all values, is the same only where its sides are.
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
        return False  # x + 1 = x and x + 2 = x are no more alike than 0 = 1 and 0 = 2
    return _constant_ratio(*differences) is not None


def _same_sides(gold: Any, answer: Any) -> bool:
    pairs = ((answer.lhs, answer.rhs), (answer.rhs, answer.lhs))
    return any(_same_expression(gold.lhs, a, 0) and _same_expression(gold.rhs, b, 0) for a, b in pairs)


def _constant_ratio(first: Any, second: Any) -> Any | None:
    """The number by which two expressions differ at every point; None where there is none, or it is zero."""
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
    """Whether one inequality is the other but for a factor and the side that things stand on."""
    from sympy import Expr, GreaterThan, LessThan, StrictGreaterThan, StrictLessThan

    if not all(isinstance(side, Expr) for side in (*gold.args, *answer.args)):
        return False
    kinds = {StrictLessThan: (1, True), LessThan: (1, False), StrictGreaterThan: (-1, True), GreaterThan: (-1, False)}
    if type(gold) not in kinds or type(answer) not in kinds or kinds[type(gold)][1] != kinds[type(answer)][1]:
        return False
    ratio = _constant_ratio(*((one.lhs - one.rhs) * kinds[type(one)][0] for one in _without_functions(gold, answer)))
    return ratio is not None and bool(ratio.is_positive)


def _solutions(relation: Any) -> Any | None:
    """The real numbers that an inequality of one variable allows; None where there are none, or it allows all."""
    from sympy import Reals

    try:
        found = relation.as_set()
    except (NotImplementedError, TypeError, ValueError, AttributeError):
        return None
    return None if found.is_empty or found == Reals else found


def _without_functions(*relations: Any) -> tuple[Any, ...]:
    """With one variable for each value of a function that is not known, ``f(2)``: of which no more is said."""
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

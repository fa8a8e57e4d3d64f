r"""Products that have no sign: ``2(3)``, ``\binom{5}{2}\binom{4}{1}``, ``\frac{4}{2}\frac12``.

math-verify reads a whole number and a positive number behind it as a mixed number, and adds them: 5, 14 and 2½. Only
digits directly in front of a fraction are one.
"""

from __future__ import annotations

import re

FACTORS = ("frac", "dfrac", "tfrac", "sqrt", "binom", "dbinom", "tbinom")
"""Commands that make a number of the groups behind them."""
SIGN = r" \cdot "
_NEXT = re.compile(r"(?:\\left *)?\(|\\(?P<command>" + "|".join(FACTORS) + r")(?![a-zA-Z])|(?P<digit>[0-9])")
_DIGITS = re.compile(r"(?P<before>.?)(?<![0-9.])[0-9]+(?:\.[0-9]+)?$", re.S)
_COMMAND = re.compile(r"\\([a-zA-Z]+) *$")
_OPEN = {")": "(", "}": "{"}


def with_signs(text: str) -> str:
    """The text with ``\\cdot`` between factors that stand side by side and are no mixed number."""
    places = [found.start() for found in _NEXT.finditer(text) if _is_product(text[: found.start()], found)]
    pieces = (text[first:last] for first, last in zip([0, *places], [*places, len(text)], strict=True))
    return SIGN.join(pieces)


def _is_product(before: str, following: re.Match[str]) -> bool:
    before = before.removesuffix(r"\left").rstrip()
    if before.endswith((")", "}")):
        return _ends_with_factor(before)
    if following["digit"] or (following["command"] or "").endswith("frac"):
        return False  # a digit of the same number, or a mixed number
    digits = _DIGITS.search(before)
    return digits is not None and _is_factor_behind(before[: digits.start() + len(digits["before"])])


def _ends_with_factor(before: str) -> bool:
    """Whether the group at the end of ``before`` is a factor: no exponent, index, argument, pair or interval."""
    rest = _without_group(before)
    if rest is None:
        return False
    if before.endswith(")"):
        group = before[len(rest) :]
        return "," not in group and not _COMMAND.search(rest.removesuffix(r"\left").rstrip())
    if rest.endswith(("^", "_")):
        return _is_factor_behind(rest)
    while rest.endswith(("}", "]")) and (shorter := _without_group(rest)) is not None:
        rest = shorter.rstrip()
    command = _COMMAND.search(rest)
    return command is None or command[1] in FACTORS


def _is_factor_behind(before: str) -> bool:
    """Whether what follows ``before`` is a factor: an exponent is part of one where its base is a number."""
    return before[:-1].rstrip()[-1:].isdigit() if before.endswith("^") else not before.endswith("_")


def _without_group(text: str) -> str | None:
    """What stands before the bracket that the last one closes; None where there is no such bracket."""
    closing = text[-1]
    opening = _OPEN.get(closing, "[")
    depth = 0
    for place in range(len(text) - 1, -1, -1):
        depth += (text[place] == closing) - (text[place] == opening)
        if depth == 0:
            return text[:place]
    return None

r"""Limits that a formula written by a model must satisfy before the symbolic comparison.

A short text can require unbounded work: ``9^{9^{9^9}}``, ``(10^{9})!``, ``(a+b+c)^{10^6}``, an integral. A formula
therefore passes only if it consists of known commands, and if its numbers stay small when it is evaluated. With the
limits below no integer has more than about two million bits.
"""

from __future__ import annotations

import re
from math import prod

MAX_FORMULA = 300
"""Maximum number of characters; the parser's time per character grows with the length of the formula."""
MAX_DEPTH = 12
MAX_DIGITS = 60
MAX_POWERS = 10_000
"""Maximum of the largest exponent times the exponents of all groups, which may be nested: ``((2^a)^b)^c``."""
MAX_SYMBOLIC_POWER = 100
"""Maximum exponent of anything but a number: the expansion of ``(a+b+c)^n`` has about n² terms."""
MAX_FACTORIAL = 200
MAX_BINOMIAL = 10_000

# without functions that can be nested without a ^, except the hyperbolic ones, which count as powers of e, and without
# \gamma, which is read as a factorial
_KNOWN_COMMANDS = r"""
    frac sqrt pi infty cdot times div pm mp cup cap setminus in notin emptyset le ge ne approx mathbb binom
    max min sin cos tan sinh cosh tanh cot sec csc arcsin arccos arctan log ln lg
    lfloor rfloor lceil rceil lvert rvert vert langle rangle overline bar mid colon ldots dots cdots
    alpha beta delta epsilon varepsilon zeta eta theta iota kappa lambda mu nu xi rho sigma tau phi varphi chi
    psi omega Delta Theta Lambda Sigma Phi Psi Omega begin end angle triangle circ
"""
_KNOWN = frozenset(_KNOWN_COMMANDS.split())
_COMMAND = re.compile(r"\\([A-Za-z]+)")
_ENVIRONMENT = re.compile(r"\\(?:begin|end) ?\{[a-zA-Z]{1,12}\}")
_LONG_NUMBER = re.compile(rf"[0-9]{{{MAX_DIGITS + 1},}}")
_POWER = re.compile(r"\s*(?:\^|\*\*)\s*")
_TOWER = re.compile(r"\^|\*\*|!|\\binom|\\(?:sin|cos|tan)h")
_HYPERBOLIC = re.compile(r"\\(?:sin|cos|tan)h(?![A-Za-z])\s*")
_FACTORIAL = re.compile(r"([0-9]*)\s*!")
_FACTORIAL_OF_LETTERS = re.compile(
    r"(?<![A-Za-z\\0-9])[a-zA-Z]\s*!(?!\s*!)|\( ?[1-9]?[a-zA-Z](?: ?[-+] ?(?:[a-zA-Z]|[0-9]{1,2})){0,3} ?\)\s*!(?!\s*!)"
)
"""Factorials of variables: their values at the points of comparison are small."""
_POWER_OF_LETTER = re.compile(r"(?<![A-Za-z\\])[a-df-z] ?\^ ?(?:[2-9](?![0-9])|\{ ?[2-9] ?\})")
"""A power that may stand in an exponent of e: ``e^{x^2}``."""
_BINOMIAL = re.compile(r"\\binom\s*\{?\s*([0-9]+)")
_ROOT = re.compile(r"\\sqrt\s*\[\s*([^\]]*)\]")
_WORD = re.compile(r"(?<![A-Za-z\\])(?:[A-Za-z]{4,}|or|and|not|if)(?![A-Za-z])")


def objection(text: str) -> str | None:
    """The reason why a formula in plain spelling is rejected, or None. Runs in time linear in the text."""
    if len(text) > MAX_FORMULA:
        return f"formula longer than {MAX_FORMULA} characters"
    if not text.replace("°", "").isascii():
        return "not plain ASCII"
    unknown = next((name for name in _COMMAND.findall(text) if name not in _KNOWN), None)
    if unknown is not None:
        return f"unknown command \\{unknown}"
    if _WORD.search(_COMMAND.sub(" ", _ENVIRONMENT.sub(" ", text))):
        return "words where a formula is wanted"
    if re.search("[0-9] [0-9]", text):
        return "numbers side by side"
    if re.search(r"[-+*/=<>|:^!&']{3}", text):
        return "operators in a row"
    if re.search("[0-9]_", text):
        return "number with an index"
    return _deep(text) or _large(text)


def _deep(text: str) -> str | None:
    """The reason if brackets do not match or are nested too deep, else None."""
    depth, deepest = 0, 0
    for token in re.findall(r"\\.|[(\[{}\])]", text):
        depth += token in ("(", "[", "{", r"\{")
        depth -= token in (")", "]", "}", r"\}")
        deepest = max(deepest, depth)
    if depth:
        return "brackets do not match"
    return f"brackets nested deeper than {MAX_DEPTH}" if deepest > MAX_DEPTH else None


def _large(text: str) -> str | None:
    """The reason if a number, or a number in its evaluation, would be too large, else None."""
    if _LONG_NUMBER.search(text):
        return f"number longer than {MAX_DIGITS} digits"
    factorials = _FACTORIAL.findall(_FACTORIAL_OF_LETTERS.sub("", text))
    if any(not number or int(number) > MAX_FACTORIAL for number in factorials):
        return f"factorial of more than {MAX_FACTORIAL}"
    if any(len(number) > 4 or int(number) > MAX_BINOMIAL for number in _BINOMIAL.findall(text)):
        return f"binomial of more than {MAX_BINOMIAL}"
    exponents = [("}", root) for root in _ROOT.findall(text)]
    for power in _POWER.finditer(text):
        exponents.append((text[: power.start()].rstrip()[-1:], _argument(text[power.end() :])))
    for function in _HYPERBOLIC.finditer(text):
        rest = text[function.end() :]
        exponents.append(("e", rest[: group_end(rest)]))
    if any(_TOWER.search(_POWER_OF_LETTER.sub("", power) if base == "e" else power) for base, power in exponents):
        return "power in an exponent"
    sizes = [(base, _largest(exponent)) for base, exponent in exponents]
    # an empty base, as of "^2", counts as a group and as a symbol: "" is in every string, and is no digit
    of_groups = prod(size for base, size in sizes if base in ")]}|")
    if of_groups * max((size for base, size in sizes if base not in ")]}|"), default=1) > MAX_POWERS:
        return f"exponents of more than {MAX_POWERS} in all"
    if any(size > MAX_SYMBOLIC_POWER and not base.isdigit() for base, size in sizes):
        return f"formula to a power of more than {MAX_SYMBOLIC_POWER}"
    return None


def _argument(text: str) -> str:
    """The exponent at the start of a text: a letter, digits or a bracketed group, with a power sign after it; else the
    whole text."""
    simple = re.match(r"[-+]?(?:[0-9]+|[A-Za-z])", text)
    end = simple.end() if simple else group_end(text)
    behind = _POWER.match(text, end)
    return text[: behind.end() if behind else end]


def group_end(text: str) -> int:
    """One past the position at which the first bracket of a text closes; the text's length without such a bracket."""
    depth = 0
    for place, sign in enumerate(text):
        depth += (sign in "([{") - (sign in ")]}")
        if place and depth == 0 and text[0] in "([{":
            return place + 1
    return len(text)


def _largest(exponent: str) -> int:
    """An upper bound of an exponent, at least 1: the product of (n + 1) over its whole numbers n."""
    numbers = [int(number[:MAX_DIGITS]) for number in re.findall("[0-9]+", exponent)]
    return max(1, prod(number + 1 for number in numbers)) if numbers else 1

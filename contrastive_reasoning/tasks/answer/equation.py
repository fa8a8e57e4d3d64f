r"""Answers with an equals sign: ``x = 5``, ``f(x) = x^2``, ``\frac62 = 3``. A name before it is no answer."""

from __future__ import annotations

import re

_EQUALS = re.compile(r"(?<![<>!\\=])=(?!=)")
_INDEX = re.compile(r"_(?:[0-9A-Za-z]|\{[0-9A-Za-z, ]*\})")
_LETTER = re.compile(
    r"\\(?:alpha|beta|gamma|delta|epsilon|varepsilon|zeta|eta|theta|iota|kappa|lambda|mu|nu|xi|rho|sigma|tau|phi"
    r"|varphi|chi|psi|omega|Gamma|Delta|Theta|Lambda|Sigma|Phi|Psi|Omega)(?![A-Za-z])|(?<![A-Za-z\\])[A-Za-z]+"
)
_COMMAND = re.compile(r"\\mathbb ?\{? ?[A-Z]|\\[A-Za-z]+|\\.")
_CONSTANTS = frozenset("ei")
_NAME = re.compile(rf"[A-Za-z' ]+(?: ?\([A-Za-z, ]*\))?|{_LETTER.pattern}")
_ORDER = re.compile(r"<|>|\\(?:le|ge|ne|in|notin|approx)(?![A-Za-z])")


def sides(text: str) -> list[str]:
    """What stands on the sides of the equals signs; the text itself where there is none."""
    return [side.strip() for side in _EQUALS.split(text)]


def is_relation(text: str) -> bool:
    """Whether a text says that something is equal to, less than or in something."""
    return len(sides(text)) > 1 or bool(_ORDER.search(text))


def letters(text: str) -> frozenset[str]:
    """The variables of a formula: every letter and every Greek one, but e and i; words fall into their letters."""
    found: set[str] = set()
    for name in _LETTER.findall(_COMMAND.sub(_keep_letters, _INDEX.sub("", text))):
        found |= {name} if name.startswith("\\") else set(name)
    return frozenset(found - _CONSTANTS)


def wanted_side(gold: str) -> str | None:
    """What a gold equation gives as the value: behind a name, or the last of equal numbers; None if it is neither."""
    *named, last = sides(gold)
    if all(_is_name(side) for side in named) or not letters(gold):
        return last
    return None


def value_sides(answer: str, gold: str) -> list[str]:
    """The sides of an answer that claim a value; all of them must be right.

    Not a claim is a name, ``f(x)``, or what holds a variable that the gold answer does not have: ``2a + b = 5``. The
    last side always counts.
    """
    *named, last = sides(answer)
    return [*(side for side in named if not (_is_name(side) or letters(side) - letters(gold))), last]


def same_name(gold: str, answer: str) -> bool:
    """Whether the first sides of two equations are the same but for blanks."""
    return sides(gold)[0].replace(" ", "") == sides(answer)[0].replace(" ", "")


def _is_name(side: str) -> bool:
    return bool(_NAME.fullmatch(_INDEX.sub("", side)))


def _keep_letters(command: re.Match[str]) -> str:
    return command.group() + " " if _LETTER.fullmatch(command.group()) else " "

r"""Numbers written in a base, ``2516_8``: the digits must be the same, and the base where the answer names one too."""

from __future__ import annotations

import re
from typing import NamedTuple

_BASED = re.compile(r"(?P<sign>-?) ?(?P<digits>[0-9A-F]{1,60})(?:_\{ ?(?P<base>[0-9]{1,2}|[a-z]{3,8}) ?\})?")
_NAMES: dict[str, str] = {
    "two": "2",
    "three": "3",
    "four": "4",
    "five": "5",
    "six": "6",
    "seven": "7",
    "eight": "8",
    "nine": "9",
    "ten": "10",
}


class Based(NamedTuple):
    """The digits without leading zeros, and the base, empty where none is named."""

    digits: str
    base: str


def read_based(text: str) -> Based | None:
    """The number in a base that a text in its plain spelling is, or None."""
    match = _BASED.fullmatch(text)
    if match is None:
        return None
    base = match["base"] or ""
    return Based(match["sign"] + (match["digits"].lstrip("0") or "0"), _NAMES.get(base, base))


def same_based(gold: Based, answer: Based) -> bool:
    """Whether the digits are the same; a base that only one of them names is the one that the question wants."""
    return gold.digits == answer.digits and (gold.base == answer.base or not (gold.base and answer.base))

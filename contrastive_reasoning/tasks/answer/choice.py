r"""Multiple choice: which letter is chosen? ``B``, ``(b)``, ``\text{B}``, ``B. a bank``, ``Option B``."""

from __future__ import annotations

import re

from contrastive_reasoning.tasks.answer.extract import extract
from contrastive_reasoning.tasks.answer.outcome import OK, unparsed, wrong
from contrastive_reasoning.tasks.answer.spelling import plain
from contrastive_reasoning.tasks.base import Verdict

_LETTER = re.compile(
    r"(?:(?:option|choice|answer)[ :]{1,2})?[({\[]?(?P<letter>[A-Za-z])[)}\]]?(?P<rest>(?:[.:,)]| ?-) ?.*)?",
    re.IGNORECASE | re.DOTALL,
)
_ANOTHER = re.compile(
    r"(?:[,;/&]|\b(?:or|and))\s*[(\[]?[A-HJ-Za-k](?![A-Za-z])|(?<![A-Za-z])(?:[A-HJ-Z][.:)\]]|[(\[][A-Za-k][)\]])"
)
"""A second letter, behind a comma or a word, or before another text. ``C. vitamin C`` has none."""


def verify_choice(gold_letter: str, completion: str) -> Verdict:
    """The verdict on the letter that a completion gives; several letters are wrong, whatever they are."""
    gold = read_letter(gold_letter)
    if gold is None:
        return Verdict(status="error", reason="no gold letter")
    found = extract(completion)
    if found.answer is None:
        return unparsed(found.reason)
    letter = read_letter(found.answer)
    if letter is None:
        return unparsed("no single letter")
    return OK if letter == gold else wrong("another letter")


def read_letter(text: str) -> str | None:
    """The letter that a text chooses, as a capital; None if it is none, or more than one."""
    match = _LETTER.fullmatch(plain(text))
    if match is None or _ANOTHER.search(match["rest"] or ""):
        return None
    return match["letter"].upper()

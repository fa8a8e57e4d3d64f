"""Answers in words: a name, a day, a letter, True or False. Capitals and an article before it do not matter."""

from __future__ import annotations

import re

_WORDS = re.compile(r"[A-Za-z][A-Za-z'’.-]*(?: [A-Za-z'’][A-Za-z'’.-]*)*|[A-Za-z]{3,}(?: [0-9A-Za-z]+)+")
_ARTICLE = re.compile(r"(?:the|an?) (?=[a-z]{2})")
_TRUTH = {"yes": "true", "no": "false"}


def read_words(text: str) -> str | None:
    """The words that a text in its plain spelling is, in small letters, or None if it is more than words."""
    if not _WORDS.fullmatch(text):
        return None
    return _ARTICLE.sub("", text.lower(), count=1).strip(".' ")


def same_words(gold: str, answer: str) -> bool:
    """Whether two readings are the same; to a gold True or False, yes and no are answers too."""
    if gold in _TRUTH.values():
        answer = _TRUTH.get(answer, answer)
    return gold == answer

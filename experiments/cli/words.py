"""What a command takes, typed as ``key=value`` or as flags; a mistake in it is answered in one sentence."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from typing import NoReturn

from experiments.cli.suggestions import did_you_mean_one_of

USAGE_ERROR = 2
KEY = re.compile(r"[a-z][\w.]*")
"""What could be a key before ``=``; a name may have any characters."""


class WordsParser(argparse.ArgumentParser):
    """Every flag takes a value, and none may be shortened.

    Args:
        module: run as ``python -m``.
        doc: its docstring, whose first line describes it.
    """

    def __init__(self, module: str, doc: str | None) -> None:
        super().__init__(prog=f"python -m {module}", description=(doc or "").split("\n")[0], allow_abbrev=False)

    def read(self, words: Sequence[str]) -> argparse.Namespace:
        """What was typed; a mistake ends the process with a sentence and 2."""
        return self.parse_args([self._checked(word) for word in joined(words)])

    def error(self, message: str) -> NoReturn:
        """A name too many, or none."""
        self._refuse(f"{message}; {self.prog} --help says more")

    def _refuse(self, sentence: str) -> NoReturn:
        self.exit(USAGE_ERROR, f"{sentence}\n")

    def _checked(self, word: str) -> str:
        """A name as it is, a key and its value as a flag."""
        key, equals, value = word.removeprefix("--").partition("=")
        if word in ("-h", "--help") or not (word.startswith("-") or (equals and KEY.fullmatch(key))):
            return word
        known = {action.dest: action for action in self._actions if action.option_strings and action.dest != "help"}
        if key not in known:
            self._refuse(f"{word.removeprefix('--')}: no such key; {did_you_mean_one_of(key, list(known))}")
        if not equals:
            self._refuse(f"{key}: give a value, {key}=…")
        if known[key].type is int and not value.removeprefix("-").isdecimal():
            self._refuse(f"{key}={value}: it takes a whole number")
        return f"--{key}={value}"


def joined(words: Sequence[str]) -> Iterator[str]:
    """``--key value`` as ``--key=value``."""
    left = iter(words)
    for word in left:
        bare = word.startswith("--") and "=" not in word and word != "--help"
        value = next(left, None) if bare else None
        yield word if value is None else f"{word}={value}"

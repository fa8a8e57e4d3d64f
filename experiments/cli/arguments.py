"""Arguments of a command as ``key=value`` or as flags; a mistake in them is answered in one sentence."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import NoReturn

from experiments.config.hints import did_you_mean

USAGE_ERROR = 2
KEY = re.compile(r"[a-z][\w.]*")
"""What could be a key before ``=``; a name may have any characters."""


class KeyValueParser(argparse.ArgumentParser):
    """Every option takes a value, and none may be abbreviated.

    Args:
        module: run as ``python -m``.
        doc: its docstring, whose first line describes it.
    """

    def __init__(self, module: str, doc: str | None) -> None:
        super().__init__(prog=f"python -m {module}", description=(doc or "").split("\n")[0], allow_abbrev=False)

    def read(self, arguments: Sequence[str]) -> argparse.Namespace:
        """The values; a mistake ends the process with a sentence and exit code 2."""
        return self.parse_args([self._as_flag(argument) for argument in _join_values(arguments)])

    def error(self, message: str) -> NoReturn:
        """A name too many, or none."""
        self._refuse(f"{message}; {self.prog} --help says more")

    def _refuse(self, sentence: str) -> NoReturn:
        self.exit(USAGE_ERROR, f"{sentence}\n")

    def _as_flag(self, argument: str) -> str:
        """A name as it is, a key and its value as ``--key=value``."""
        key, equals, value = argument.removeprefix("--").partition("=")
        if argument in ("-h", "--help") or not (argument.startswith("-") or (equals and KEY.fullmatch(key))):
            return argument
        known = {action.dest: action for action in self._actions if action.option_strings and action.dest != "help"}
        if key not in known:
            self._refuse(f"{argument.removeprefix('--')}: no such key; {did_you_mean(key, known, names=known)}")
        if not equals:
            self._refuse(f"{key}: give a value, {key}=…")
        if known[key].type is int and not value.removeprefix("-").isdecimal():
            self._refuse(f"{key}={value}: it takes a whole number")
        return f"--{key}={value}"


def _join_values(arguments: Sequence[str]) -> Iterator[str]:
    """``--key value`` as ``--key=value``."""
    left = iter(arguments)
    for argument in left:
        bare = argument.startswith("--") and "=" not in argument and argument != "--help"
        value = next(left, None) if bare else None
        yield argument if value is None else f"{argument}={value}"


def split_own_keys(
    arguments: Sequence[str], own: Sequence[str], *, keys: Sequence[str] = ()
) -> tuple[dict[str, str], list[str]]:
    """The values of a command's own keys, and the overrides of the configuration that are left.

    Args:
        arguments: both, as they were given.
        own: the command's own keys.
        keys: of the configuration, which are never taken for a mistyped own one.

    Raises:
        ValueError: for what is most likely a mistyped own key.
    """
    given: dict[str, str] = {}
    left: list[str] = []
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if equals and key in own:
            given[key] = value
        elif key not in keys and (near := get_close_matches(key, own, n=1, cutoff=0.8)):
            raise ValueError(f"{key}: no such key; did you mean {near[0]!r}?")
        else:
            left.append(argument)
    return given, left

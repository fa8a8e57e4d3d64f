"""Parses arguments of a command as ``key=value`` or as flags; an invalid one gives a message of one sentence."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from textwrap import fill
from typing import NoReturn

from experiments.config.hints import did_you_mean
from experiments.system.terminal import USAGE_ERROR

KEY = re.compile(r"[a-z][\w.]*=")
"""Matches what may be a key. A name may have any characters."""
WIDTH = 100
"""Columns of a help text."""


def home_path(text: str) -> Path:
    """Returns the path, with a ``~`` at its start replaced by the home folder. A shell leaves it in ``key=~/x``."""
    return Path(text).expanduser()


def positive(kind: Callable[[str], float], *, most: float = math.inf) -> Callable[[str], float]:
    """Returns a parser of numbers of this kind above 0, at most ``most``; it raises ArgumentTypeError for others."""

    def read(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not 0 < value <= most:  # in this form nan is invalid too
            what = "a whole number" if kind is int else "a number"
            limit = "" if most == math.inf else f" and at most {most:g}"
            raise argparse.ArgumentTypeError(f"must be {what} above 0{limit}, got {text}")
        return value

    return read


def split_list(value: str) -> list[str]:
    """Returns the parts of ``a,b`` or ``[a,b]``."""
    return [one.strip() for one in value.strip("[]").split(",")]


class KeyValueParser(argparse.ArgumentParser):
    """A parser whose options all take a value and cannot be abbreviated. Invalid arguments exit with code 2.

    Args:
        prog: the command, as in the usage.
        doc: the first line is the description.
        more: arguments in the help text that the parser does not read, such as overrides of the configuration.
    """

    def __init__(self, prog: str, doc: str | None, *, more: str = "") -> None:
        super().__init__(prog=prog, description=(doc or "").split("\n")[0], allow_abbrev=False)
        self.more = more

    @property
    def own_keys(self) -> list[str]:
        """The keys that the parser reads."""
        return [action.dest for action in self._actions if action.option_strings and action.dest != "help"]

    def read(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Returns the values. ``key=value`` is read as ``--key=value``."""
        values, unknown = self.parse_known_args([f"--{each}" if KEY.match(each) else each for each in arguments])
        for argument in unknown:
            if argument.startswith("-"):
                given, known = argument.removeprefix("--"), self.own_keys
                hint = did_you_mean(given.partition("=")[0], known, names=known)
                self.exit(USAGE_ERROR, f"{given}: no such key; {hint}\n")
            self.error(f"unrecognized arguments: {argument}")
        return values

    def format_help(self) -> str:
        """Returns usage, description, a line for each argument as it is written on a command line, and the epilog."""
        names = {
            action: f"{action.dest}={action.metavar or '…'}" if action.option_strings else str(action.metavar or "NAME")
            for action in self._actions
            if action.dest != "help"
        }
        arguments = [f"[{name}]" if action.option_strings else name for action, name in names.items()]
        usage = fill(" ".join(["Usage:", self.prog, *arguments, self.more]).rstrip(), WIDTH, subsequent_indent=" " * 4)
        width = max(map(len, names.values()), default=0)
        rows = [f"  {name:<{width}}  {action.help}" for action, name in names.items()]
        parts = [usage, self.description, "\n".join(rows), self.epilog]
        return "\n\n".join(part for part in parts if part) + "\n"

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE_ERROR, f"{message}; {self.prog} --help shows all options\n")


def split_own_keys(
    arguments: Sequence[str], own: Sequence[str], *, keys: Sequence[str] = ()
) -> tuple[dict[str, str], list[str]]:
    """Splits arguments into the values of a command's own keys and the overrides of the configuration.

    Raises ValueError for a key that is most likely a mistyped own key. Those in ``keys``, which are keys of the
    configuration, never are.
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

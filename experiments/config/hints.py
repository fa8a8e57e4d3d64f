"""Suggestions in messages: the valid name nearest to a mistyped one, and commands to run. Standard library only."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Collection
from difflib import get_close_matches
from pathlib import Path

from experiments.config.folders import ROOT, experiment_names

FEW = 16
"""The most names that a sentence lists beside the nearest one."""
IN_A_CLONE = (ROOT / "Makefile").is_file()
"""Whether this is a clone of the repository; an installed package has no Makefile."""


def did_you_mean(word: str, known: Collection[str], *, names: Collection[str] | None = None) -> str:
    """Returns ``did you mean 'x'?`` if a valid name is near, else the list of valid names.

    A dotted key also matches by its last part, so ``weight`` finds ``reward.weight``. Keys with exactly this last part
    are all listed, if there are at most ``FEW``.

    Args:
        word: the name that was given.
        known: the valid names.
        names: the names to list. At most ``FEW`` are listed beside the nearest, ``did you mean 'x' of x, y, z?``; all
            are listed if none is near. None: nothing beside the nearest, and ``known`` if none is near.
    """
    same_end = sorted(key for key in known if key.endswith(f".{word}"))
    if word not in known and 1 < len(same_end) <= FEW:
        return f"did you mean {' or '.join(map(repr, same_end))}?"
    near = nearest(word, known)
    if near is None:
        every = known if names is None else names
        return f"there are {', '.join(sorted(every))}" if every else "there are none"
    of_all = f" of {', '.join(sorted(names))}" if names and 1 < len(names) <= FEW else ""
    return f"did you mean {near!r}{of_all}?"


def not_in_mlflow(name: str, there: Collection[str]) -> str:
    """Returns what to do if MLflow has no experiment of this name: run it, or choose one of those ``there``."""
    if name in experiment_names():
        return f"run `{command_line('exp', name)}` first"
    return did_you_mean(name, there, names=there)


def nearest(word: str, known: Collection[str]) -> str | None:
    """Returns the most similar name, else the shortest dotted key whose last part is similar to the word's."""
    if near := get_close_matches(word, known, n=1, cutoff=0.6):
        return near[0]
    last = word.rpartition(".")[2]
    tail = get_close_matches(last, {key.rpartition(".")[2] for key in known}, n=1, cutoff=0.75)
    alike = [key for key in known if tail and key.rpartition(".")[2] == tail[0]]
    return min(alike, key=lambda key: (len(key), key), default=None)


def command_line(command: str, name: str = "", rest: str = "") -> str:
    """Returns a Makefile command as it is run here: with ``make`` in a clone, else with ``contrastive-reasoning``."""
    words = ["make", command, name and f"name={name}"] if IN_A_CLONE else ["contrastive-reasoning", command, name]
    return " ".join(word for word in (*words, rest) if word)


def install_command(extra: str) -> str:
    package = f"-c constraints.txt -e '.[{extra}]'" if IN_A_CLONE else f"'contrastive-reasoning[{extra}]'"
    return f"{python_command()} -m pip install {package}"


def python_command() -> str:
    """Returns this process's Python for a shell, relative to the working folder: ``.venv/bin/python``."""
    python, here = Path(sys.executable), Path.cwd()  # not resolved: a virtual environment's Python is a link
    return shlex.quote(str(python.relative_to(here) if python.is_relative_to(here) else python))

"""What a message suggests: the nearest valid name to a mistyped one, and the command to type. Standard library only."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

from experiments.config.folders import ROOT

FEW = 16
"""As many names can be listed in a sentence and still be read."""
IN_A_CLONE = (ROOT / "Makefile").is_file()
"""An installed package has no Makefile."""


def did_you_mean(word: str, known: Collection[str], *, names: Collection[str] | None = None) -> str:
    """``did you mean 'x'?`` where something is near, else the list of what is known.

    A dotted key also matches by its last part, so ``weight`` finds ``reward.weight``.

    Args:
        word: what was typed.
        known: what is valid.
        names: what to list beside the nearest, ``did you mean 'x' of x, y, z?``, where that is at most ``FEW``, or in
            its place; None: nothing beside it, else ``known``.
    """
    near = nearest(word, known)
    if near is None:
        every = known if names is None else names
        return f"there are {', '.join(sorted(every))}" if every else "there are none"
    of_all = f" of {', '.join(sorted(names))}" if names and 1 < len(names) <= FEW else ""
    return f"did you mean {near!r}{of_all}?"


def nearest(word: str, known: Collection[str]) -> str | None:
    """The most similar name, else the shortest dotted key whose last part is similar to the word's last part."""
    if near := get_close_matches(word, known, n=1, cutoff=0.6):
        return near[0]
    last = word.rpartition(".")[2]
    tail = get_close_matches(last, {key.rpartition(".")[2] for key in known}, n=1, cutoff=0.75)
    alike = [key for key in known if tail and key.rpartition(".")[2] == tail[0]]
    return min(alike, key=lambda key: (len(key), key), default=None)


def command_line(command: str, name: str = "", rest: str = "") -> str:
    """A command of the Makefile for an experiment or a study, as it is typed here: by make, or after an install."""
    words = ["make", command, name and f"name={name}"] if IN_A_CLONE else ["contrastive-reasoning", command, name]
    return " ".join(word for word in (*words, rest) if word)


def install_command(extra: str) -> str:
    """What installs an extra of this package."""
    return f"pip install -e '.[{extra}]'" if IN_A_CLONE else f"pip install 'contrastive-reasoning[{extra}]'"

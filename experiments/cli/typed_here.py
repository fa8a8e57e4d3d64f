"""How a person types a command where this runs: make's in a clone, the console command's after an install.

Standard library only.
"""

from __future__ import annotations

from pathlib import Path

IN_A_CLONE = (Path(__file__).resolve().parents[2] / "Makefile").is_file()
"""An installed package has no Makefile."""


def typed(command: str, name: str = "", rest: str = "") -> str:
    """A command of the Makefile, which the console command has too, for an experiment or a study of this name."""
    words = ["make", command, name and f"name={name}"] if IN_A_CLONE else ["contrastive-reasoning", command, name]
    return " ".join(word for word in (*words, rest) if word)


def installs(extra: str) -> str:
    """What installs an extra of this package."""
    return f"pip install -e '.[{extra}]'" if IN_A_CLONE else f"pip install 'contrastive-reasoning[{extra}]'"

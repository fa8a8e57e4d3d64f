"""What files hold that would do something where they are read: a pickle and a module, each with its canary."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any


class Trap:
    """Writes a file where somebody unpickles it."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.canary,)


def pickled(canary: Path) -> bytes:
    """A pickle that is a trap."""
    return pickle.dumps({"weight": Trap(canary)})


def module(canary: Path, *classes: str) -> str:
    """The text of a module that is a trap, with classes that a configuration may name."""
    return "\n".join([f"open({str(canary)!r}, 'w')", *[f"class {name}: pass" for name in classes], ""])

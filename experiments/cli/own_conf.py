"""A folder of YAML files of one's own beside the house's: ``--config-dir FOLDER``, whose groups add to those of conf/.

The folder's name is kept in a variable, which conf/config.yaml reads: so every composition finds it, in this process
and in those that a run starts (ranks, jobs of a sweep). Set by hand, it holds for every command.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

VARIABLE = "CONTRASTIVE_REASONING_CONF"
OPTIONS = ("--config-dir", "-cd")
CONF = Path(__file__).resolve().parents[2] / "conf"


class NoFolder(ValueError):
    """One sentence for the person who asked."""


def remember(arguments: Sequence[str]) -> list[str]:
    """The arguments without the folder, which is kept for this process and those that it starts.

    Raises:
        NoFolder: where there is no such folder, or one of its files would be hidden by one of the house's.
    """
    left: list[str] = []
    said, folder = VARIABLE + "=", os.environ.get(VARIABLE)
    rest = iter(arguments)
    for argument in rest:
        option, equals, value = argument.partition("=")
        if option in OPTIONS:
            said, folder = f"{option} ", value if equals else next(rest, "")
        else:
            left.append(argument)
    if folder is not None:
        _refuse_unusable(folder, said)
        os.environ[VARIABLE] = str(Path(folder).resolve())
    return left


def own_folder() -> Path | None:
    """The folder; None where none is named."""
    return Path(os.environ[VARIABLE]) if VARIABLE in os.environ else None


def as_typed() -> list[str]:
    """What names the folder on a command line; nothing where there is none."""
    folder = own_folder()
    return [] if folder is None else [f"--config-dir={folder}"]


def _refuse_unusable(folder: str, said: str) -> None:
    if not folder or not Path(folder).is_dir():
        raise NoFolder(f"{said}{folder}: no such folder")
    names = [path.relative_to(folder) for path in sorted(Path(folder).rglob("*.yaml"))]
    if hidden := next((name for name in names if (CONF / name).is_file()), None):
        raise NoFolder(f"{said}{folder}: {hidden} is a file of conf/ too, which comes first; give yours another name")

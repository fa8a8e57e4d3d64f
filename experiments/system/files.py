"""Small files written whole or not at all, so that neither a reader, a killed run nor a power cut leaves half of one.

written beside ──► brought to the disk ──► given its name ──► the folder's names brought to the disk
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from experiments.system.secret_values import concealed

PARTIAL = re.compile(r"\..+\.([1-9]\d*)")
"""The name of a file that is being written; the number is that of the process."""


def write_text(path: Path, text: str) -> None:
    """Write a text in which no secret of the environment stands: such files are shared."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = partial_of(path)
    partial.write_text(concealed(text), encoding="utf-8")
    put_in_place(partial, path)


def partial_of(path: Path) -> Path:
    """Where this process writes a file before it has its name."""
    return path.with_name(f".{path.name}.{os.getpid()}")


def put_in_place(partial: Path, path: Path) -> None:
    """Give a file the name that it is to have, of which there may be one already: never is it the name of less."""
    sync(partial)
    os.replace(partial, path)
    sync(path.parent)


def clear_partials(folder: Path) -> None:
    """Remove what processes of this machine that are no more left beside a file while they wrote it.

    In a container the next process may have the number of the one before: what bears this one's counts as left, so this
    is for when it writes nothing there.
    """
    for path in folder.rglob(".*"):
        found = PARTIAL.fullmatch(path.name)
        if found and path.is_file() and not _runs(int(found[1])):
            path.unlink(missing_ok=True)


def _runs(process: int) -> bool:
    if process == os.getpid():
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def sync(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk; returns when they are there."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_all(path: Path) -> None:
    """Bring a file, or all that is in a folder, to the disk with the names it is found under; of neither nothing."""
    if path.exists():
        for part in [*(path.rglob("*") if path.is_dir() else ()), path, path.parent]:
            sync(part)


def write_json(path: Path, content: Mapping[str, Any] | Sequence[Any]) -> None:
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def write_yaml(path: Path, content: Mapping[str, Any]) -> None:
    write_text(path, OmegaConf.to_yaml(OmegaConf.create(dict(content))))

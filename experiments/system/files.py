"""Files that are written whole or not at all, locks, and names that are safe as folders.

A file is written beside its place, synced to disk, then renamed; the folder's names are synced after that. Neither a
reader, a killed run nor a power cut leaves half of one.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from filelock import FileLock, Timeout
from omegaconf import OmegaConf

from experiments.system.secrets import hide_secrets

PARTIAL = re.compile(r"\..+\.([1-9]\d{0,8})")
"""The name of a file that is being written; the number is that of the process."""
LONGEST_NAME = 100
"""Characters; file systems take 255 bytes, and endings are added."""
LONGEST_JOINED = 150
"""Bytes of several names joined to one."""
REFUSED = frozenset(r'/\:*?"<>|')
"""Characters that some file system does not accept in a name."""


def write_text(path: Path, text: str) -> None:
    """Write a text, with the secrets of the environment hidden in it: such files are shared."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = partial_of(path)
    partial.write_text(hide_secrets(text), encoding="utf-8")
    put_in_place(partial, path)


def write_json(path: Path, content: Mapping[str, Any] | Sequence[Any]) -> None:
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def write_yaml(path: Path, content: Mapping[str, Any]) -> None:
    write_text(path, OmegaConf.to_yaml(OmegaConf.create(dict(content))))


def partial_of(path: Path) -> Path:
    """Where this process writes a file before it is renamed to ``path``."""
    return path.with_name(f".{path.name}.{os.getpid()}")


def put_in_place(partial: Path, path: Path) -> None:
    """Rename a complete file to its final name, replacing an earlier one atomically."""
    sync(partial)
    os.replace(partial, path)
    sync(path.parent)


def clear_partials(folder: Path) -> None:
    """Remove unfinished files that processes of this machine left behind when they died.

    In a container the next process may have the number of the one before: files with this process's own number count
    as left behind, so call this only when it is writing nothing there.
    """
    for path in folder.rglob(".*"):
        found = PARTIAL.fullmatch(path.name)
        if found and path.is_file() and (int(found[1]) == os.getpid() or not psutil.pid_exists(int(found[1]))):
            path.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_all(path: Path) -> None:
    """Flush a file, or a folder with everything in it, and their names to disk. Does nothing where ``path`` is not."""
    if path.exists():
        for part in [*(path.rglob("*") if path.is_dir() else ()), path, path.parent]:
            sync(part)


@contextmanager
def lock(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold a file's lock; yields False where another process holds it and we do not ``wait``.

    The system frees it when its holder ends, however it ends.
    """
    held = FileLock(path)
    try:
        held.acquire(blocking=wait)
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        held.release()


def name_flaw(name: str) -> str | None:
    """Why a name cannot be that of a folder, in words that follow the name; None for one that can."""
    refused = sorted(REFUSED.intersection(name))
    flaws = {
        "is blank": not name.strip(),
        "begins with a dot": name.startswith("."),
        "begins or ends with a character that file systems drop": name != name.strip() or name.endswith("."),
        f"has more than {LONGEST_NAME} characters": len(name) > LONGEST_NAME,
        f"holds {' '.join(refused)}, and must be one plain name": refused,
        "holds an invisible character": any(unicodedata.category(character)[0] == "C" for character in name),
    }
    return next((flaw for flaw, has_it in flaws.items() if has_it), None)


def plain_name(name: str, *, what: str) -> str:
    """The name itself, which is one plain part of a path. ``what``: its key, for the ValueError about any other."""
    if flaw := name_flaw(name):
        raise ValueError(f"{what}={quoted(name)} {flaw}")
    return name


def plain_path(name: str, *, what: str) -> str:
    """A name like ``val/completions``, each part of which is plain; else as :func:`plain_name`."""
    for part in name.split("/"):
        if flaw := name_flaw(part):
            raise ValueError(f"{what}={quoted(name)}: {part!r} {flaw}")
    return name


def join_names(names: Sequence[str]) -> str:
    """One name for several plain ones, ``NAME+NAME``; where that is long, its beginning and a hash of them all."""
    whole = "+".join(names)
    if len(whole.encode()) <= LONGEST_JOINED:
        return whole
    # a plain name may hold a plus, but no newline
    mark = "-" + hashlib.sha256("\n".join(names).encode()).hexdigest()[:12]
    return whole.encode()[: LONGEST_JOINED - len(mark)].decode(errors="ignore") + mark


def quoted(name: str) -> str:
    """A name in quotes for a message, cut where it is long."""
    return repr(name) if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]!r}…"

"""Atomic file writes, locks, the last line of a log, and names that are safe for folders.

A file is written under a temporary name, synced to disk, then renamed; after that its folder is synced. So no reader
sees half a file, and neither a killed run nor a power cut leaves one under its final name.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from filelock import FileLock, Timeout
from omegaconf import OmegaConf

from experiments.system.secrets import hide_secrets

PARTIAL = re.compile(r"\..+\.([1-9]\d{0,8})")
"""Matches the name of a file that is being written; the number is the process id."""
LONGEST_NAME = 100
"""Characters. File systems allow 255 bytes, and suffixes are added."""
LONGEST_JOINED = 150
"""Most bytes of several names joined into one."""
REFUSED = frozenset(r'/\:*?"<>|')
"""Characters that at least one file system does not accept in a name."""
NOT_PLAIN = (
    f"must be one plain name of at most {LONGEST_NAME} printable characters, without {' '.join(sorted(REFUSED))}, and "
    "without a dot or a space at its ends"
)


def write_text(path: Path, text: str) -> None:
    """Writes a text atomically and hides the environment's secrets in it, because such files are shared."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = partial_of(path)
    partial.write_text(hide_secrets(text), encoding="utf-8")
    put_in_place(partial, path)


def write_json(path: Path, content: Mapping[str, Any] | Sequence[Any]) -> None:
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def write_yaml(path: Path, content: Mapping[str, Any]) -> None:
    write_text(path, OmegaConf.to_yaml(OmegaConf.create(dict(content))))


def partial_of(path: Path) -> Path:
    """Returns the temporary path under which this process writes a file before renaming it to ``path``."""
    return path.with_name(f".{path.name}.{os.getpid()}")


def put_in_place(partial: Path, path: Path) -> None:
    """Renames a complete file to its final name, replacing an earlier one atomically."""
    sync(partial)  # before the rename, so that a power failure leaves no partial file under the final name
    os.replace(partial, path)
    sync(path.parent)  # the rename is a change of the folder


def last_line(log: Path, *, default: str) -> str:
    """Returns the last line of a log that is not blank: an error message or the end of a traceback."""
    with log.open(encoding="utf-8", errors="replace") as file:
        return "".join(deque(filter(str.strip, file), maxlen=1)).strip() or default


def clear_partials(folder: Path) -> None:
    """Removes unfinished files of processes on this machine that have died.

    In a container the next process may have the same id as the last one. So files with this process's own id are
    removed too: call this only while this process writes nothing in ``folder``.
    """
    for path in folder.rglob(".*"):
        found = PARTIAL.fullmatch(path.name)
        if found and path.is_file() and (int(found[1]) == os.getpid() or not psutil.pid_exists(int(found[1]))):
            path.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Flushes a file, or the names in a folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_all(path: Path) -> None:
    """Flushes a file or a whole folder, and their names, to disk. Does nothing if ``path`` does not exist."""
    if path.exists():
        for part in [*(path.rglob("*") if path.is_dir() else ()), path, path.parent]:
            sync(part)


@contextmanager
def lock(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Holds a lock on a file and yields True; yields False if ``wait`` is False and another process holds the lock.

    The operating system releases the lock when its holder ends for any reason.
    """
    held = FileLock(path)  # not reentrant: a second lock of this process on the same file waits, too
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
    """Returns why a name is not valid for a folder, as a phrase to follow the name; None if it is valid."""
    printable = 0 < len(name) <= LONGEST_NAME and name.isprintable() and not REFUSED.intersection(name)
    return None if printable and name == name.strip(" .") else NOT_PLAIN


def plain_path(name: str, *, what: str) -> str:
    """Returns a name such as ``val/completions``. Raises ValueError with ``what`` unless every part is plain."""
    for part in name.split("/"):
        if flaw := name_flaw(part):
            raise ValueError(f"{what}={quote_name(name)}: {part!r} {flaw}")
    return name


def join_names(names: Sequence[str]) -> str:
    """Joins plain names to ``NAME+NAME``; if that is too long, returns its beginning and a hash of all names."""
    whole = "+".join(names)
    if len(whole.encode()) <= LONGEST_JOINED:
        return whole
    # a plain name may contain a plus sign, but no newline
    mark = "-" + hashlib.sha256("\n".join(names).encode()).hexdigest()[:12]
    return whole.encode()[: LONGEST_JOINED - len(mark)].decode(errors="ignore") + mark


def quote_name(name: str) -> str:
    """Returns a name in quotes for a message, cut to ``LONGEST_NAME`` characters."""
    return repr(name) if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]!r}…"

"""One process at a time: a lock on a file, freed by the system when its holder ends, however it ends."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def lock(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold a file's lock; yields False where another process holds it and we do not ``wait``."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        yield True


@contextlib.contextmanager
def announced_lock(path: Path, *, waiting: str) -> Iterator[None]:
    """Hold a file's lock; print ``waiting`` first where another process holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with lock(path, wait=False) as free:
        if free:
            yield
            return
    print(waiting)
    with lock(path):
        yield

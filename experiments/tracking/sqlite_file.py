"""MLflow's SQLite file: opened by one of our processes at a time, and there with all of its tables or not at all."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from experiments.system.lock import lock

SCHEME = "sqlite:///"
UNFINISHED = ".unfinished"
JOURNAL = "-journal"
"""What SQLite calls the file beside a database by which it takes an unfinished transaction back."""


@contextlib.contextmanager
def alone_at(address: str) -> Iterator[None]:
    """Within it no other process of ours opens this SQLite file: two that make its tables at once both fail."""
    if not address.startswith(SCHEME):
        yield
        return
    database = Path(address.removeprefix(SCHEME))
    database.parent.mkdir(parents=True, exist_ok=True)
    with lock(database.with_suffix(".lock")):
        yield


def make_whole(address: str, open_at: Callable[[str], object]) -> None:
    """Have the tables of a new SQLite file made beside it first.

    They take MLflow many steps, and a file whose maker was killed between two of them can never be opened again. To be
    called within ``alone_at``.

    Args:
        address: of MLflow's store; nothing is done unless it is a SQLite file, without options, that is empty or not
            there yet.
        open_at: opens a store, which makes its tables.
    """
    name = address.removeprefix(SCHEME)
    if not address.startswith(SCHEME) or "?" in name or name in ("", ":memory:"):
        return
    database = Path(name).resolve()  # a link stays one
    if database.exists() and database.stat().st_size:
        return
    database.parent.mkdir(parents=True, exist_ok=True)
    unfinished = database.with_name(database.name + UNFINISHED)
    for left in (unfinished, unfinished.with_name(unfinished.name + JOURNAL)):  # by a maker that was killed
        left.unlink(missing_ok=True)
    open_at(f"{SCHEME}{unfinished}")
    if not (database.exists() and database.stat().st_size):  # MLflow's own programs do not ask for the lock
        unfinished.replace(database)

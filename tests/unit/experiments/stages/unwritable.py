"""Folders that cannot be written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def unwritable(folder: Path) -> Iterator[None]:
    """Makes the folder read-only within the context. The superuser becomes user 65534, nobody, for that time."""
    above = [path for path in folder.parents if path.stat().st_uid == os.geteuid()]
    modes, user = {path: path.stat().st_mode for path in (folder, *above)}, os.geteuid()
    for path, mode in modes.items():
        path.chmod(0o555 if path == folder else mode | 0o055)
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)
        for path, mode in modes.items():
            path.chmod(mode)

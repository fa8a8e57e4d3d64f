"""Folders that hold the policy's weights during a transfer to a server: in shared memory or on a disk.

    /dev/shm/contrastive_reasoning_weights.1f0c…      shared memory: readable by this user alone
    outputs/vllm_weights/1f0c…                        a disk: as the folder above it

Each transfer has a folder of its own, which is removed at its end.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

import psutil

SHARED_MEMORY = Path("/dev/shm")
CONTROL_GROUP = Path("/sys/fs/cgroup")
"""Files of the control group of this process, whose limit a container has: ``memory.max`` and ``memory.current``."""
PREFIX = "contrastive_reasoning_weights."
GIB = 2**30
RESERVE = GIB
"""Bytes of memory that must stay free, because the system ends processes when there is none."""
ABANDONED = 24 * 3600
"""Seconds after which a folder in shared memory belongs to no transfer, but to a process that was killed."""


def missing_space(size: int) -> str | None:
    """Returns why shared memory cannot hold ``size`` bytes, as a clause; None if it can."""
    if not os.access(SHARED_MEMORY, os.W_OK):
        return f"{SHARED_MEMORY} is not there or cannot be written"
    space = max(0, min(shutil.disk_usage(SHARED_MEMORY).free, free_memory() - RESERVE))
    return None if size <= space else f"{SHARED_MEMORY} has space for {space / GIB:.2g} of {size / GIB:.2g} GiB"


def free_memory() -> int:
    """Bytes of memory that this process can still use, by the machine and by the limit of its container."""
    free = psutil.virtual_memory().available
    with suppress(OSError, ValueError):  # no control group, or no limit ("max")
        limit, used = (int((CONTROL_GROUP / name).read_text()) for name in ("memory.max", "memory.current"))
        free = min(free, limit - used)
    return free


@contextmanager
def shared_folder() -> Iterator[Path]:
    """Yields a new folder in shared memory, readable by this user alone, and removes it afterwards.

    It also removes those that processes of this user have left there a day ago or earlier.
    """
    for left in SHARED_MEMORY.glob(f"{PREFIX}*"):
        with suppress(OSError):  # another process removes it, too
            if left.stat().st_uid == os.getuid() and time.time() - left.stat().st_mtime > ABANDONED:
                shutil.rmtree(left)
    with new_folder(SHARED_MEMORY, f"{PREFIX}{uuid4().hex}", mode=0o700) as folder:
        yield folder


@contextmanager
def new_folder(parent: Path, name: str | None = None, *, mode: int = 0o777) -> Iterator[Path]:
    """Yields a new folder below ``parent``, which is created if it is missing, and removes the new one afterwards.

    ``name`` is by default one that no other process chooses. Raises OSError if it cannot be created.
    """
    folder = parent / (name or uuid4().hex)
    folder.mkdir(mode=mode, parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)

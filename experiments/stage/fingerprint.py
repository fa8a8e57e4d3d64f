"""What a finished stage is recognised by: everything that decides its result, in one hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LENGTH = 12
BLOCK, STRIDE = 1 << 20, 1 << 25
"""Of a file of weights its first and last MiB and one every 32 MiB: any size in seconds."""


def fingerprint(content: Mapping[str, Any]) -> str:
    """The first 12 hex digits of SHA-256 over the content as canonical JSON: key order does not matter."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:LENGTH]


def content_hash(path: Path, *, stride: int = STRIDE) -> str:
    """A hash over a file, or over the names, sizes and contents of all files of a folder.

    Training changes weights everywhere, an editor changes one line of a data set: ``stride=BLOCK`` reads all of it.
    """
    digest = hashlib.sha256()
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    for file in files:
        name = "" if file == path else str(file.relative_to(path))
        digest.update(f"{name}:{file.stat().st_size}:".encode())
        digest.update(_blocks(file, stride))
    return digest.hexdigest()[:LENGTH]


def _blocks(path: Path, stride: int) -> bytes:
    size = path.stat().st_size
    starts = sorted({*range(0, size, stride), max(size - BLOCK, 0)})
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for start in starts:
            file.seek(start)
            digest.update(file.read(BLOCK))
    return digest.digest()

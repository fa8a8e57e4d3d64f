"""Hashes of settings and file contents, and checksums of each file of a folder, to detect damage later.

{"model.safetensors": {"bytes": 1024, "sha256": "…"}, …}        checksums of a folder; for a single file the name is ""
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

LENGTH = 12
SETTLED_NS = 2_000_000_000
"""Age of a file from which its size and time of change identify its content; file systems have coarse clocks."""


def fingerprint(content: Mapping[str, Any]) -> str:
    """The first 12 hex digits of SHA-256 over the content as canonical JSON; key order does not matter."""
    # any other form of the text would rename every stage folder
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:LENGTH]


def content_hash(path: Path) -> str:
    """A hash over a file, or over the names, sizes and contents of all files of a folder.

    A process reads a file again only if its size or time of change differs.
    """
    digest = hashlib.sha256()
    for name, part in _parts(path).items():
        stat = part.stat()
        settled = time.time_ns() - stat.st_mtime_ns > SETTLED_NS
        whole = _sha256_once(part.absolute(), stat.st_size, stat.st_mtime_ns) if settled else _sha256(part)
        digest.update(f"{name}:{stat.st_size}:".encode() + bytes.fromhex(whole))
    return digest.hexdigest()[:LENGTH]


@cache
def _sha256_once(path: Path, size: int, changed: int) -> str:
    return _sha256(path)


def checksums(path: Path) -> dict[str, dict[str, int | str]]:
    """Bytes and SHA-256 of a file, or of each file under a folder; empty if ``path`` does not exist."""
    return {name: {"bytes": part.stat().st_size, "sha256": _sha256(part)} for name, part in _parts(path).items()}


def damage(path: Path, marked: Mapping[str, Any], *, what: str, sizes_only: bool = False) -> str | None:
    """A sentence about the first file that does not match its checksum; None if all match.

    Args:
        path: the file or the folder of the checksums.
        marked: the result of :func:`checksums`. Files that were added later are not checked.
        what: the noun for ``path`` in the sentence.
        sizes_only: whether contents are not read, which takes seconds for large files.
    """
    if not path.exists():
        return f"{what} {path} is missing"
    there = _parts(path)
    for name, expected in marked.items():
        part = there.get(name)
        if part is None:
            return f"{what} {path} lacks {name}"
        if part.stat().st_size != expected["bytes"]:
            return f"{what} {part} is damaged: {part.stat().st_size} bytes, not {expected['bytes']}"
        if not sizes_only and _sha256(part) != expected["sha256"]:
            return f"{what} {part} is damaged: not what was written (sha256 differs)"
    return None


def _parts(path: Path) -> dict[str, Path]:
    """Relative name → path of each file in a folder; a single file has the name ""."""
    if path.is_file():
        return {"": path}
    return {str(part.relative_to(path)): part for part in sorted(path.rglob("*")) if part.is_file()}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

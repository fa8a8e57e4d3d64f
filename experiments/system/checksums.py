"""Hashes: of settings, of what files hold, and of each file of a folder, to notice later that one was damaged.

{"model.safetensors": {"bytes": 1024, "sha256": "…"}, …}        checksums of a folder; the name of a file alone is empty
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
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


def checksums(path: Path) -> dict[str, dict[str, int | str]]:
    """Bytes and SHA-256 of a file, or of each file under a folder; nothing where there is neither."""
    return {name: {"bytes": part.stat().st_size, "sha256": _sha256(part)} for name, part in _parts(path)}


def damage(path: Path, marked: Mapping[str, Any], *, what: str) -> str | None:
    """What is wrong with the files of these marks, in a sentence that names the first; None: nothing.

    Args:
        path: the file or the folder that was marked.
        marked: its marks. Files that came later are not looked at.
        what: the noun for ``path``.
    """
    if not path.exists():
        return f"{what} {path} is missing"
    there = dict(_parts(path))
    for name, expected in marked.items():
        part = there.get(name)
        if part is None:
            return f"{what} {path} lacks {name}"
        if part.stat().st_size != expected["bytes"]:
            return f"{what} {part} is damaged: {part.stat().st_size} bytes, not {expected['bytes']}"
        if _sha256(part) != expected["sha256"]:
            return f"{what} {part} is damaged: not what was written (sha256 differs)"
    return None


def _parts(path: Path) -> Iterator[tuple[str, Path]]:
    """Names within the folder, and files; a file has the empty name."""
    if path.is_file():
        yield "", path
    else:
        yield from ((str(part.relative_to(path)), part) for part in sorted(path.rglob("*")) if part.is_file())


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(BLOCK):
            digest.update(chunk)
    return digest.hexdigest()

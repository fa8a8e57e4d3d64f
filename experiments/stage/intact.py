"""Files as they were written: how many bytes each has and their hash, and later what has become of them.

{"model.safetensors": {"bytes": 1024, "sha256": "…"}, …}        name within a folder; of a file alone it is empty
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

CHUNK = 1 << 20


def marks(path: Path) -> dict[str, dict[str, int | str]]:
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
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()

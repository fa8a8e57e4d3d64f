"""What a finished stage is recognised by: everything that decides its result, in one hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LENGTH = 12
MOST_BYTES = 1 << 26
"""Of each file; large weights are told apart by their size and their first 64 MiB, in a fraction of a second."""


def fingerprint(content: Mapping[str, Any]) -> str:
    """The first 12 hex digits of SHA-256 over the content as canonical JSON: key order does not matter."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:LENGTH]


def folder_hash(folder: Path) -> str:
    """A hash over the names, sizes and contents of the files directly in ``folder``."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.iterdir() if path.is_file()):
        digest.update(f"{path.name}:{path.stat().st_size}:".encode())
        with path.open("rb") as file:
            digest.update(file.read(MOST_BYTES))
    return digest.hexdigest()[:LENGTH]

"""The rooms whose code a configuration uses, with their versions and the hash of their code.

A room's integer ``VERSION`` is raised when the same configuration would give another result; it decides whether a stage
is reused. The code's hash only tells: an edited docstring retrains nothing, but the difference is named.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

PURE = "contrastive_reasoning"
OURS = (PURE, "lightning_modules", "datamodules", "callbacks", "experiments")


def targets(config: Any) -> Iterator[str]:
    """Every ``_target_`` in a resolved configuration."""
    if isinstance(config, Mapping):
        for key, value in config.items():
            if key == "_target_":
                yield str(value)
            else:
                yield from targets(value)
    elif isinstance(config, list | tuple):
        for value in config:
            yield from targets(value)


def rooms_of(config: Any) -> list[str]:
    """Our packages that the targets live in: ``contrastive_reasoning.losses``, ``datamodules``; sorted."""
    parts = (target.split(".") for target in targets(config))
    return sorted({".".join(path[:2]) if path[0] == PURE else path[0] for path in parts if path[0] in OURS})


def versions(rooms: Iterable[str]) -> dict[str, int]:
    """Room → its ``VERSION``. Raises AttributeError for a room that states none."""
    return {room: int(import_module(room).VERSION) for room in rooms}


def code_hashes(rooms: Iterable[str]) -> dict[str, str]:
    """Room → a hash over its Python files."""
    return {room: _code_hash(Path(str(import_module(room).__file__)).parent) for room in rooms}


def _code_hash(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(f"{path.relative_to(folder)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:12]

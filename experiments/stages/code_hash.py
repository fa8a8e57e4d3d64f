"""The rooms whose code a configuration uses, with their versions and the hash of their code.

An integer ``VERSION`` stands in a room's ``__init__``, or in a module that wants its own; it is raised when the same
configuration would give another result, and decides whether a stage is reused. The code's hash only tells: an edited
docstring retrains nothing, but the difference is named.
"""

from __future__ import annotations

import hashlib
import re
import sysconfig
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from experiments.import_paths import OURS, is_ours

PURE = "contrastive_reasoning"
IMPORTED = re.compile(rf"^\s*(?:from|import) ({PURE}\.\w+|{'|'.join(OURS[1:])})\b", re.MULTILINE)
"""A room in an import statement."""
SHOWING = {f"{PURE}.progress"}
"""Rooms by which no result comes out otherwise."""


def targets(config: Any) -> Iterator[str]:
    """Every ``_target_`` of ours in a resolved configuration."""
    return (target for target in all_targets(config) if is_ours(target))


def all_targets(config: Any) -> Iterator[str]:
    """Every ``_target_`` in a resolved configuration, of whatever library."""
    if isinstance(config, Mapping):
        for key, value in config.items():
            if key == "_target_":
                yield str(value)
            else:
                yield from all_targets(value)
    elif isinstance(config, list | tuple):
        for value in config:
            yield from all_targets(value)


def room_of(target: str) -> str:
    """The package a target lives in: ``contrastive_reasoning.losses``, ``datamodules``."""
    parts = target.split(".")
    return ".".join(parts[:2]) if parts[0] == PURE else parts[0]


def versions(config: Any) -> dict[str, int]:
    """Module or room → its ``VERSION``, for every target: the nearest one going up from the target's module."""
    return dict(_nearest_version(target) for target in targets(config))


def _nearest_version(target: str) -> tuple[str, int]:
    module = target.rpartition(".")[0]
    while module:
        if hasattr(found := import_module(module), "VERSION"):
            return module, int(found.VERSION)
        module = module.rpartition(".")[0]
    raise AttributeError(f"neither the module of {target} nor a package above it states an integer VERSION")


def code_hashes(config: Any) -> dict[str, str]:
    """Room → a hash over its Python files, for every room that the configuration uses, and those that these import."""
    return {room: _code_hash(_folder(room)) for room in _used({room_of(target) for target in targets(config)})}


def changed_rooms(config: Any, then: Mapping[str, str]) -> list[str]:
    """The rooms whose code differs from what ``then`` recorded; of one that it says nothing of nothing is known.

    Where nothing at all was recorded, all of them.
    """
    return [room for room, code in code_hashes(config).items() if then.get(room, code if then else "") != code]


def _used(rooms: Collection[str]) -> list[str]:
    """The rooms, and all that their files import, sorted; without those that only show something."""
    used, left = set[str](), {*rooms}
    while left:
        room = left.pop()
        used.add(room)
        found = {name for path in _folder(room).rglob("*.py") for name in IMPORTED.findall(path.read_text())}
        left |= found - used - SHOWING
    return sorted(used)


def _folder(room: str) -> Path:
    spec = find_spec(room)
    assert spec is not None, f"no package {room}"
    assert spec.origin is not None, f"{room} has no __init__.py"
    return Path(spec.origin).parent


def _code_hash(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(f"{path.relative_to(folder)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:12]


INSTALLED = [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")]


def own_files(config: Any) -> dict[str, Path]:
    """Name as it stands in the configuration → the file of its module."""
    found = {target: _file_of(target) for target in all_targets(config) if not is_ours(target)}
    return {target: path for target, path in found.items() if path is not None and not _installed(path)}


def _file_of(target: str) -> Path | None:
    """The module's file, the module itself not imported; None where there is none, which building it will say."""
    module = target.rpartition(".")[0]
    while module:  # the module of my.module.Class.make is two names up
        with suppress(ImportError, ValueError):  # a parent is no package; it was loaded as a script
            spec = find_spec(module)
            if spec is not None:
                return Path(spec.origin) if spec.origin is not None and spec.has_location else None
        module = module.rpartition(".")[0]
    return None


def _installed(path: Path) -> bool:
    return any(path.is_relative_to(place) for place in INSTALLED)

"""Python files of one's own that a configuration names: an edited reward is another reward, and is trained with again.

A ``_target_`` of the house has a version instead (see ``rooms.py``), and installed libraries are pinned. What a file of
one's own imports in turn is not looked at: put what decides the result into the file that is named.
"""

from __future__ import annotations

import sysconfig
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from experiments.stage.rooms import all_targets, is_ours

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

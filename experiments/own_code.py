"""Python files of one's own that a configuration names: an edited reward is another reward, and is trained with again.

A ``_target_`` of the house has a version instead (see ``rooms.py``), and installed libraries are pinned. What a file of
one's own imports in turn is not looked at: put what decides the result into the file that is named.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from experiments.rooms import OURS


def own_files(config: Any) -> dict[str, Path]:
    """Name as it stands in the configuration → the file that it is found in."""
    found = {target: _file_of(target) for target in _targets(config) if target.partition(".")[0] not in OURS}
    return {target: path for target, path in found.items() if path is not None and not _installed(path)}


def _targets(config: Any) -> Iterator[str]:
    if isinstance(config, Mapping):
        for key, value in config.items():
            if key == "_target_":
                yield str(value)
            else:
                yield from _targets(value)
    elif isinstance(config, list | tuple):
        for value in config:
            yield from _targets(value)


def _file_of(target: str) -> Path | None:
    """The module's file, found without importing anything; None where there is none."""
    first, *rest = target.split(".")
    spec = None
    with suppress(ValueError):  # a module that was loaded as a script
        spec = find_spec(first)
    if spec is None:
        return None
    for folder in spec.submodule_search_locations or ():
        here = Path(folder)
        for part in rest:
            if (here / f"{part}.py").is_file():
                return here / f"{part}.py"
            here = here / part
    return Path(spec.origin) if spec.origin is not None and spec.origin.endswith(".py") else None


def _installed(path: Path) -> bool:
    places = [sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")]
    return any(path.is_relative_to(place) for place in places)

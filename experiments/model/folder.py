"""The folder of a fetched model. It is either complete, with a record of its origin, or missing.

outputs/models/smollm2-135m-q4/origin.json        {"name": …, "sha256": …, "versions": …, "files": checksums}
outputs/models/.smollm2-135m-q4.b179c9523d0e.partial/    until it is complete; then renamed
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from experiments.config.known_models import ORIGIN
from experiments.run_folder.reader import read_json
from experiments.system.checksums import checksums, damage
from experiments.system.files import put_in_place, sync_all, write_json


class FetchError(Exception):
    """Raised if a model cannot be fetched; the message is one sentence."""


def partial_of(folder: Path, mark: str) -> Path:
    """Returns the folder of an incomplete model. ``mark`` identifies its version, so that two are never mixed."""
    return folder.with_name(f".{folder.name}.{mark[:12]}.partial")


def finish(partial: Path, folder: Path, origin: Mapping[str, Any], *, packages: tuple[str, ...]) -> None:
    """Writes the origin, the versions of ``packages`` and the checksums, then moves the folder into place.

    It replaces a damaged folder and removes incomplete ones of other versions. Its files are as readable as the umask
    allows.
    """
    versions = {package: version(package) for package in packages}
    write_json(partial / ORIGIN, {**origin, "versions": versions, "files": checksums(partial)})
    mode = (partial / ORIGIN).stat().st_mode
    for file in filter(Path.is_file, partial.rglob("*")):  # safetensors writes files that only their owner can read
        file.chmod(mode)
    sync_all(partial)
    if folder.exists():
        shutil.rmtree(folder)
    put_in_place(partial, folder)
    for left in folder.parent.glob(f".{folder.name}.*.partial"):
        shutil.rmtree(left)


def flaw(folder: Path, *, revision: str | None) -> str | None:
    """Returns what is wrong with a fetched model, as one sentence; None if every file is as it was fetched.

    Raises:
        FetchError: for a folder that was not fetched, or that holds another revision. Neither is changed.
    """
    origin = read_json(folder / ORIGIN)
    if not origin:
        raise FetchError(
            f"{folder} is there, but was not fetched ({ORIGIN} is missing): move it away, or name it as it is, "
            f"policy.pretrained={folder}"
        )
    if revision is not None and revision not in (origin.get("revision"), origin.get("commit")):
        there = f"revision {origin['revision']} ({origin['commit'][:12]})"
        raise FetchError(f"revision={revision}: {folder} holds {there}; remove that folder to fetch another one")
    return damage(folder, origin["files"], what="file")

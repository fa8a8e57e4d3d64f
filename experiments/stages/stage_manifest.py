"""The records in a stage's folder: the manifest of its inputs and, written last, the result for later stages.

    stages/critic/194b5949ff48/
      begun.json     {"config": …, "parents": …, "files": …, "code": …, "settings": …, …}
      result.json    {"stage": "critic", …, "left": {"critic": {"critic.safetensors": {…}, …}}, "contents": {…}}

``earlier_code`` in the manifest lists earlier code if the stage was resumed after a change of code, with
``checkpoints.resume_changed_code=true``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.run_folder.reader import CRITIC, MANIFEST, METRICS_FILE, POLICY, RESULT, read_json
from experiments.stages.plan import StagePlan
from experiments.system.checksums import checksums, content_hash, damage
from experiments.system.files import sync_all, write_json

LOCK = ".lock"
CONTENTS = "contents"
"""Key in the result: content hashes that identify policy and critic for later stages, on any machine."""


def record_of(plan: StagePlan) -> dict[str, Any]:
    """Returns the part of a plan that is written to its manifest."""
    return {name: getattr(plan, name) for name in ("config", "parents", "files", "code", "settings")}


def write_manifest(plan: StagePlan, *, earlier_code: Sequence[Mapping[str, str]] = ()) -> None:
    write_json(plan.folder / MANIFEST, record_of(plan) | {"earlier_code": list(earlier_code)})


def read_manifest(folder: Path) -> dict[str, Any]:
    """Returns the manifest of a stage; empty if there is none."""
    return read_json(folder / MANIFEST)


def write_result(folder: Path, record: Mapping[str, Any]) -> None:
    """Writes the result, which marks the stage as complete, after syncing its files to disk."""
    left = {name: found for name in (POLICY, CRITIC) if (found := checksums(folder / name))}
    contents = {name: content_hash(folder / name) for name in left}
    for name in (POLICY, CRITIC, METRICS_FILE):
        sync_all(folder / name)
    write_json(folder / RESULT, {**record, "left": left, CONTENTS: contents})


def is_finished(folder: Path) -> bool:
    """Whether the stage is complete and its files are undamaged."""
    return (folder / RESULT).is_file() and find_damage(folder) is None


def find_damage(folder: Path) -> str | None:
    left: dict[str, Any] = read_json(folder / RESULT).get("left", {})
    return next(filter(None, (damage(folder / name, found, what="file") for name, found in left.items())), None)

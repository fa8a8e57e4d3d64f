"""What a stage's folder records of itself: what it was begun with, and, written last, what it leaves for later stages.

    stages/critic/194b5949ff48/
      begun.json     {"config": …, "parents": …, "files": …, "code": …, "settings": …, "overrides": …, …}
      result.json    {"stage": "critic", …, "left": {"critic": {"critic.safetensors": {…}, …}}, "contents": {…}}

``earlier_code`` in the first one lists the code of before where the stage went on although it had changed, as
``checkpoints.resume_changed_code=true`` asks for. Earlier versions of this project wrote ``typed`` for
``overrides``, and hashes of whole packages as ``code``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.import_paths import with_current_targets
from experiments.run_folder.reader import CRITIC, MANIFEST, METRICS_FILE, POLICY, RESULT, read_json
from experiments.stages.plan import StagePlan, named_things
from experiments.system.checksums import checksums, content_hash, damage
from experiments.system.files import sync_all, write_json

LOCK = ".lock"
CONTENTS = "contents"
"""In the result: the hash by which a later stage that names what was left knows it, on whatever machine."""


def record_of(plan: StagePlan) -> dict[str, Any]:
    """What of a plan is written into its manifest."""
    return {name: getattr(plan, name) for name in ("config", "parents", "files", "code", "settings")}


def write_manifest(
    plan: StagePlan, *, overrides: Sequence[str] | None, earlier_code: Sequence[Mapping[str, str]] = ()
) -> None:
    """Record what the stage begins, or goes on, with; ``overrides`` of the command line, None where nobody knows."""
    further = {"overrides": None if overrides is None else list(overrides), "earlier_code": list(earlier_code)}
    write_json(plan.folder / MANIFEST, record_of(plan) | further)


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a stage; the empty one where there is none.

    One of before the code of modules was hashed has neither ``settings`` nor ``code``: by what code it was made is
    unknown.
    """
    manifest = read_json(folder / MANIFEST)
    if not manifest or "settings" in manifest:
        return manifest
    data = {name for _, name in named_things(manifest["config"])}
    return {
        "config": with_current_targets(manifest["config"]),
        "parents": manifest["parents"],
        "files": {name: mark for name, mark in manifest["files"].items() if name in data},
        "code": {},
        "settings": None,
        "overrides": manifest.get("typed"),
    }


def write_result(folder: Path, record: Mapping[str, Any]) -> None:
    """Record that the stage is complete, and what it leaves, once all of that is on the disk."""
    left = {name: found for name in (POLICY, CRITIC) if (found := checksums(folder / name))}
    contents = {name: content_hash(folder / name) for name in left}
    for name in (POLICY, CRITIC, METRICS_FILE):
        sync_all(folder / name)
    write_json(folder / RESULT, {**record, "left": left, CONTENTS: contents})


def finished(folder: Path) -> bool:
    """Whether the stage has ended, and what it left is what it wrote."""
    return (folder / RESULT).is_file() and damaged(folder) is None


def damaged(folder: Path) -> str | None:
    """What is wrong with the files that a finished stage left, in a sentence; None: nothing.

    A result of before checksums were written is not looked at.
    """
    left: dict[str, Any] = read_json(folder / RESULT).get("left", {})
    return next(filter(None, (damage(folder / name, found, what="file") for name, found in left.items())), None)

"""The end of a stage: ``result.json``, written last, with the hashes of what the stage leaves for later ones.

    stages/critic/194b5949ff48/result.json    {"stage": "critic", …, "left": {"critic": {"critic.safetensors": {…}, …}}}

A stage that has one is reused as long as these files are what was written. Where one of them is not, its newest
checkpoint makes them again. A result of before the hashes were kept is taken at its word.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contrastive_reasoning.distributed import from_first, this_rank
from experiments.run_folder import METRICS_FILE, read_json
from experiments.stages.checkpoints import CHECKPOINTS, CheckpointError, kept
from experiments.stages.plan import CRITIC, POLICY, StagePlan
from experiments.stages.resume import RESULT
from experiments.system.checksums import checksums, content_hash, damage
from experiments.system.files import sync_all, write_json

CONTENTS = "contents"
"""In the result: the hash by which a later stage that names what was left knows it, on whatever machine."""


def write_result(folder: Path, told: Mapping[str, Any]) -> None:
    """Say that the stage is complete, and what it leaves, once all of that is on the disk."""
    left = {name: checksums(folder / name) for name in (POLICY, CRITIC)}
    contents = {name: content_hash(folder / name) for name, found in left.items() if found}
    for name in (*left, METRICS_FILE):
        sync_all(folder / name)
    files = {name: found for name, found in left.items() if found}
    write_json(folder / RESULT, {**told, "left": files, CONTENTS: contents})


def finished(folder: Path) -> bool:
    """Whether the stage has ended, and what it left is what it wrote."""
    return (folder / RESULT).is_file() and damaged(folder) is None


def damaged(folder: Path) -> str | None:
    """What is wrong with the files that a finished stage left, in a sentence; None: nothing."""
    left: dict[str, Any] = read_json(folder / RESULT).get("left", {})
    return next(filter(None, (damage(folder / name, found, what="file") for name, found in left.items())), None)


def reusable(plan: StagePlan) -> bool:
    """Whether the stage need not run; the same on every rank, of which rank 0 reads the files.

    Raises:
        CheckpointError: where a file that it left is damaged, and no checkpoint is there to make it again from.
    """
    ended, sentence = from_first(_looked_at(plan.folder) if this_rank() == 0 else (False, None))
    if sentence is None:
        return ended
    if not kept(plan.folder / CHECKPOINTS):
        raise CheckpointError(
            f"{plan.name}: {sentence}; no checkpoint is left to make it again from: remove {plan.folder} to begin anew"
        )
    print(f"{plan.name}: {sentence}; the stage's newest checkpoint makes it again")
    return False


def _looked_at(folder: Path) -> tuple[bool, str | None]:
    return (folder / RESULT).is_file(), damaged(folder)

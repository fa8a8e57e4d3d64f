"""Decides what happens with the stages that earlier runs left:

    the same fingerprint, finished     reused
    the same fingerprint, unfinished   resumed from its newest checkpoint
    another fingerprint                a new stage begins beside it, and one line names the newest such stage

``checkpoints.resume_changed_code=true`` takes the newest stage that differs only by code, finished or not, in its own
folder. Unfinished stages without a checkpoint are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import shorten
from typing import Any, NamedTuple

from omegaconf import DictConfig

from contrastive_reasoning.distributed import from_first, this_rank
from experiments.run_folder.reader import MANIFEST, RESULT, flatten
from experiments.stages.checkpoints import CHECKPOINTS, CheckpointError, kept_checkpoints
from experiments.stages.code_hash import changed_modules
from experiments.stages.plan import StagePlan, plan_stages
from experiments.stages.stage_manifest import LOCK, find_damage, read_manifest, record_of, write_manifest
from experiments.system.files import lock

ACCEPT = "checkpoints.resume_changed_code=true"
MOST_NAMED, LONGEST = 4, 60  # limits of a message: named differences, characters of a value


class Earlier(NamedTuple):
    """A stage of the same kind that an earlier run finished, or stopped after a checkpoint."""

    folder: Path
    manifest: Mapping[str, Any]
    step: int | None
    """Step of its newest checkpoint; None for a finished stage."""
    left_at: float
    """When it finished or wrote its newest checkpoint, in seconds since 1970."""

    def differs_by_code_alone(self, plan: StagePlan) -> bool:
        return self.manifest.get("settings") == plan.settings


def stages_taken(config: DictConfig) -> dict[str, StagePlan]:
    """Plans the stages of an experiment, with the folders that a run of this configuration would use."""
    return plan_stages(config, accept=_accept_changed_code if config.checkpoints.resume_changed_code else None)


def _accept_changed_code(plan: StagePlan) -> StagePlan:
    """Moves the plan to the newest stage that differs only by code, if today's code has left none.

    Rank 0 searches, and all ranks get the same plan.
    """
    newest = None
    if this_rank() == 0 and not (plan.folder / RESULT).exists() and not kept_checkpoints(plan.folder / CHECKPOINTS):
        newest = _newest(one for one in _earlier_stages(plan) if one.differs_by_code_alone(plan))
    folder = from_first(plan.folder if newest is None else newest.folder)
    return replace(plan, fingerprint=folder.name, folder=folder)


def reusable(plan: StagePlan, *, changed_code: bool) -> bool:
    """Whether the stage is finished and undamaged, so that it need not run. Rank 0 reads the files for all ranks.

    Args:
        plan: the plan of the stage.
        changed_code: whether a stage may be taken whose code has changed since.

    Raises:
        CheckpointError: if the stage was resumed under other code, or a result file is damaged and there is no
            checkpoint from which to restore it.
    """
    if changed := from_first(changed_modules(plan.code, read_manifest(plan.folder).get("code", plan.code))):
        if not changed_code:
            raise CheckpointError(
                f"{plan.name}: {plan.folder} was resumed under other code of {_few(changed)}: {ACCEPT} takes it, or "
                "remove it to start again"
            )
        print(f"{plan.name}: {plan.folder} is of other code of {_few(changed)}; it is taken nevertheless")
    ended = (plan.folder / RESULT).is_file()
    ended, sentence = from_first((ended, find_damage(plan.folder)) if this_rank() == 0 else (False, None))
    if sentence is None:
        return ended
    if not kept_checkpoints(plan.folder / CHECKPOINTS):
        raise CheckpointError(
            f"{plan.name}: {sentence}; no checkpoint is left to restore it from: remove {plan.folder} to start again"
        )
    print(f"{plan.name}: {sentence}; restoring it from the stage's newest checkpoint")
    return False


def begin(plan: StagePlan) -> None:
    """Writes the manifest of a new stage, or that of a stage which goes on under other code. Only rank 0.

    Prints which of the two it is. A new stage also names the newest earlier one and what differs; finished ones are
    named only if their code alone differs.
    """
    if this_rank() != 0:
        return
    if kept_checkpoints(plan.folder / CHECKPOINTS):
        before = read_manifest(plan.folder)
        if (code := before.get("code", plan.code)) != plan.code:
            write_manifest(plan, earlier_code=[*before.get("earlier_code", []), code])
        print(f"{plan.name}: resuming in {plan.folder}")
        return
    found = [one for one in _earlier_stages(plan) if one.step is not None or one.differs_by_code_alone(plan)]
    if (newest := _newest(one for one in found if one.step is None or not _in_use(one.folder))) is not None:
        state = "is finished" if newest.step is None else f"stopped at checkpoint {newest.step}"
        option = f" ({ACCEPT} takes it)" if newest.differs_by_code_alone(plan) else ""
        print(f"{plan.name}: begins anew; {newest.folder} {state} and differs in {_difference(newest, plan)}{option}")
    write_manifest(plan)
    print(f"{plan.name}: running in {plan.folder}")


def _earlier_stages(plan: StagePlan) -> list[Earlier]:
    found: list[Earlier] = []
    for folder in sorted(path.parent for path in plan.folder.parent.glob(f"*/{MANIFEST}")):
        done, checkpoints = (folder / RESULT).exists(), kept_checkpoints(folder / CHECKPOINTS)
        if folder != plan.folder and (done or checkpoints):
            step = None if done else checkpoints[-1].step
            left_at = (folder / (RESULT if done else CHECKPOINTS)).stat().st_mtime
            found.append(Earlier(folder, read_manifest(folder), step, left_at))
    return found


def _newest(found: Iterable[Earlier]) -> Earlier | None:
    return max(found, key=lambda one: one.left_at, default=None)


def _in_use(folder: Path) -> bool:
    with lock(folder / LOCK, wait=False) as free:
        return not free


def _difference(earlier: Earlier, plan: StagePlan) -> str:
    """Returns ``reward.weight 0.1 (now 0.2)`` for each value that differs, or the modules whose code does.

    Equal changes of equal keys are listed once, because many keys take their value from one such as ``seed``.
    """
    values, modules = _changes(plan.name, earlier.manifest, record_of(plan), plan.folder.parents[1])
    if modules and earlier.differs_by_code_alone(plan):
        return f"code of {_few(sorted(modules))}"
    named: dict[tuple[str, str], str] = {}
    for key in sorted(values, key=lambda key: (key.count("."), key)):
        named.setdefault((key.rpartition(".")[2], values[key]), f"{key} {values[key]}")
    return _few(sorted(named.values())) or "values of another type that are printed the same"


def _changes(stage: str, then: Any, now: Any, stages: Path) -> tuple[dict[str, str], set[str]]:
    """Returns the differing values of two manifests by their key, and the differing modules, also of the parents."""
    before, today = (_named_values(stage, record) for record in (then, now))
    values = {
        key: " (now ".join(shorten(one.get(key, "absent"), LONGEST, placeholder="…") for one in (before, today)) + ")"
        for key in before.keys() | today.keys()
        if before.get(key) != today.get(key)
    }
    modules = {*changed_modules(now["code"], then["code"])}
    for parent in then["parents"].keys() | now["parents"].keys():
        old, new = (record["parents"].get(parent, "absent") for record in (then, now))
        earlier, later = (read_manifest(stages / parent / mark) for mark in (old, new))
        if earlier and later:
            values_above, modules_above = _changes(parent, earlier, later, stages)
            values, modules = values_above | values, modules | modules_above
        elif old != new:
            values[parent] = f"{old} (now {new})"
    return values, modules


def _named_values(stage: str, record: Any) -> dict[str, str]:
    config = {**record["config"], "budget": {stage: record["config"].get("budget")}}
    return flatten(config) | {f"files.{path}": digest for path, digest in record["files"].items()}


def _few(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join([*names[:MOST_NAMED], *([f"{more} more"] if more > 0 else [])])

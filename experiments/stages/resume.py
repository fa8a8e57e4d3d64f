"""Decides what happens with the stages that earlier runs left:

    the same fingerprint, finished     reused
    the same fingerprint, unfinished   resumed from its newest checkpoint
    another fingerprint                a new stage begins beside it, and one line names the newest such stage

``checkpoints.resume_changed_code=true`` takes the newest stage that differs only by code, finished or not. Unfinished
stages without a checkpoint are ignored.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import shorten
from typing import Any

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


@dataclass(frozen=True, kw_only=True)
class Left:
    """A stage of the same kind left by an earlier run, with its differences to the planned one."""

    folder: Path
    step: int | None
    """Step of its newest checkpoint; None for a finished stage."""
    changed: Mapping[str, str]
    """Dotted key → ``0.1 (now 0.2)``, for settings and data, including those of the parents."""
    modules: Sequence[str]
    """Modules whose code differs, including those of the parents."""
    left_at: float
    """When it finished or wrote its newest checkpoint, in seconds since 1970."""

    @property
    def by_code_alone(self) -> bool:
        return not self.changed and bool(self.modules)

    @property
    def difference(self) -> str:
        """``reward.weight 0.1 (now 0.2)`` for each value that differs; equal changes of equal keys are listed once."""
        named: dict[str, str] = {}
        for key in sorted(self.changed, key=lambda key: (key.count("."), key)):
            leaf, path = key.rpartition(".")[2], re.sub(r"(?:^|(?<=\.))config\.", "", key, count=1)
            named.setdefault(f"{leaf} {self.changed[key]}", f"{path} {self.changed[key]}".strip())
        return _shorten(sorted(named.values())) or f"code of {_shorten(self.modules)}"


def _shorten(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join([*names[:MOST_NAMED], *([f"{more} more"] if more > 0 else [])])


def accept_changed_code(plan: StagePlan) -> StagePlan:
    """Replaces the plan by an existing stage that differs only by code, if there is one.

    An unfinished stage is renamed to today's fingerprint, and its manifest keeps the earlier code. Rank 0 searches and
    renames; all ranks get the same plan.
    """
    return from_first(_accept(plan) if this_rank() == 0 else plan)


def _accept(plan: StagePlan) -> StagePlan:
    if (plan.folder / RESULT).exists() or kept_checkpoints(plan.folder / CHECKPOINTS):
        return plan
    newest = _newest(one for one in left_by_others(plan, []) if one.by_code_alone)
    if newest is not None and newest.step is None:
        print(f"{plan.name}: code changed since {newest.folder} finished, in {_shorten(newest.modules)}; it is reused")
        return replace(plan, fingerprint=newest.folder.name, folder=newest.folder)
    if newest is not None:
        _go_on(plan, newest)
    return plan


def stages_taken(config: DictConfig) -> dict[str, StagePlan]:
    """Returns the stages as a run of this configuration would use them, without renaming folders."""

    def with_finished(plan: StagePlan) -> StagePlan:
        if (plan.folder / RESULT).exists():
            return plan
        newest = _newest(one for one in left_by_others(plan, []) if one.by_code_alone)
        if newest is None or newest.step is not None:
            return plan
        return replace(plan, fingerprint=newest.folder.name, folder=newest.folder)

    accept = with_finished if config.checkpoints.resume_changed_code else None
    return plan_stages(config, accept=accept)


def _newest(found: Iterable[Left]) -> Left | None:
    return max(found, key=lambda one: one.left_at, default=None)


def _go_on(plan: StagePlan, left: Left) -> None:
    """Gives an unfinished stage the plan's fingerprint and code; does nothing if another run uses either folder.

    The folders are checked again here: runs that share a stage search at the same time, and one of them renames it.
    """
    plan.folder.mkdir(parents=True, exist_ok=True)
    with _locked(plan.folder, left.folder) as held:
        ended = any((folder / RESULT).exists() for folder in (left.folder, plan.folder))
        if not held or ended or not kept_checkpoints(left.folder / CHECKPOINTS):
            return
        if left.folder != plan.folder and not _move(left.folder, plan.folder):
            return
        manifest = read_manifest(plan.folder)
        earlier = manifest.get("earlier_code", [])
        if manifest["code"] != plan.code:
            earlier = [*earlier, manifest["code"]]
        write_manifest(plan, earlier_code=earlier)
    print(f"{plan.name}: code changed since {left.folder} stopped, in {_shorten(left.modules)}; resuming nevertheless")


def _move(source: Path, target: Path) -> bool:
    """Renames an unfinished stage; False if the target has a checkpoint of its own. Both folders are locked."""
    if kept_checkpoints(target / CHECKPOINTS):
        return False
    for path in sorted(target.iterdir(), key=lambda path: path.name == LOCK):  # the lock last
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    try:
        os.replace(source, target)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):  # a waiting run has created a new lock file
            return False
        raise
    return True


def begin(plan: StagePlan, plans: Sequence[StagePlan] = ()) -> None:
    """Writes the manifest of a new stage; prints which newest one is not used, and why. Only rank 0.

    Finished stages are named only if their code alone differs. ``plans``: all stages of the run.
    """
    if this_rank() != 0:
        return
    found = left_by_others(plan, plans)
    if (newest := _newest(one for one in found if one.step is not None or one.by_code_alone)) is not None:
        state = "is finished" if newest.step is None else f"stopped at checkpoint {newest.step}"
        option = f" ({ACCEPT} takes it)" if newest.by_code_alone else ""
        print(f"{plan.name}: begins anew; {newest.folder} {state} and differs in {newest.difference}{option}")
    write_manifest(plan)


def reusable(plan: StagePlan) -> bool:
    """Whether the stage is finished and undamaged, so that it need not run. Rank 0 reads the files for all ranks.

    Raises:
        CheckpointError: if a result file is damaged and there is no checkpoint from which to restore it.
    """
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


def left_by_others(plan: StagePlan, plans: Iterable[StagePlan]) -> list[Left]:
    """Finds differing stages of this kind with a result or a checkpoint, except those in use by another run."""
    known = {one.fingerprint: record_of(one) for one in plans}
    stages = plan.folder.parents[1]
    now = record_of(plan)
    found: list[Left] = []
    for folder in sorted(path.parent for path in plan.folder.parent.glob(f"*/{MANIFEST}")):
        done, checkpoints = (folder / RESULT).exists(), kept_checkpoints(folder / CHECKPOINTS)
        if not (done or checkpoints):
            continue
        if not done and folder != plan.folder:
            with _locked(folder) as free:
                if not free:
                    continue
        try:
            left_at = (folder / (RESULT if done else CHECKPOINTS)).stat().st_mtime
        except FileNotFoundError:  # renamed in the meantime
            continue
        if not (then := read_manifest(folder)):  # likewise
            continue
        changed, modules = _settings_changed(then, now, stages, known), _modules_changed(then, now, stages, known)
        if changed or modules:
            step = None if done else checkpoints[-1].step
            found.append(Left(folder=folder, step=step, changed=changed, modules=modules, left_at=left_at))
    return found


def _settings_changed(then: Any, now: Any, stages: Path, known: Mapping[str, Any]) -> dict[str, str]:
    before, today = (_named_values(record, stages, known) for record in (then, now))
    changed = {key for key in before.keys() | today.keys() if before.get(key) != today.get(key)}
    if not changed and then["settings"] != now["settings"]:
        return {"": "values of another type that are printed the same"}
    shown = {
        key: [shorten(one.get(key, "absent"), LONGEST, placeholder="…") for one in (before, today)] for key in changed
    }
    return {key: f"{old} (now {new})" for key, (old, new) in shown.items()}


def _modules_changed(then: Any, now: Any, stages: Path, known: Mapping[str, Any]) -> list[str]:
    changed = set(changed_modules(now["code"], then["code"]))
    for stage, mark in now["parents"].items():
        before = then["parents"].get(stage, mark)
        old, new = (known.get(one) or read_manifest(stages / stage / one) for one in (before, mark))
        if before != mark and old and new:
            changed |= set(_modules_changed(old, new, stages, known))
    return sorted(changed)


def _named_values(record: Any, stages: Path, known: Mapping[str, Any]) -> dict[str, str]:
    """Returns dotted key → value of settings and data, with those of the parents in place of their fingerprints."""
    parts = {"config": record["config"], "files": record["files"]}
    named = flatten({name: part for name, part in parts.items() if part})
    for stage, mark in record["parents"].items():
        parent = known.get(mark) or read_manifest(stages / stage / mark)
        of_parent = _named_values(parent, stages, known) if parent else {"parents": str(mark)}
        named |= {f"{stage}.{key}": value for key, value in of_parent.items()}
    return named


@contextmanager
def _locked(*folders: Path) -> Iterator[bool]:
    """Holds the locks of stages; yields False if another run uses one of them or has renamed it.

    Locks are taken in the order of the names, so that one of two competing runs gets them all.
    """
    with ExitStack() as locks:
        try:
            held = all([locks.enter_context(lock(folder / LOCK, wait=False)) for folder in sorted({*folders})])
        except FileNotFoundError:
            held = False
        yield held

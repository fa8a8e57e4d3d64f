"""Decides, before the first stage runs, what happens with the stages that earlier runs left:

    finished, the same fingerprint                  reused
    finished, differs only by code                  trained again; reused with resume_changed_code=true
    unfinished, the same fingerprint                resumed from its newest checkpoint
    unfinished, differs only by code                refused; resumed with resume_changed_code=true
    unfinished, other settings, not on purpose      refused: an edited default, an omitted override, other data, devices
    unfinished, other settings on the command line  a new run starts in its own folder, and a line names the difference

With ``begin_anew=true`` a refused stage starts in a new folder. Unfinished stages without a checkpoint are ignored.
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
from experiments.mlflow_sync.describe import flatten
from experiments.run_folder.reader import MANIFEST, RESULT
from experiments.stages.checkpoints import CHECKPOINTS, CheckpointError, kept_checkpoints
from experiments.stages.code_hash import changed_modules
from experiments.stages.plan import StagePlan, plan_stages
from experiments.stages.stage_manifest import LOCK, find_damage, read_manifest, record_of, write_manifest
from experiments.system.files import lock

DEVICES = "config.trainer."
UNASKED = ("files.", DEVICES)  # these may change without intent
NEUTRAL = ("output_dir", "checkpoints", "progress", "logger")
"""Overrides that do not affect results."""
WHICH = ("experiment", "name", "seed", "scale", "family", "task", "debug", "sweep", "arm")
"""Overrides that select the run. If one of them is absent, a different run is intended, and nothing was forgotten."""
ACCEPT, ANEW = "checkpoints.resume_changed_code=true", "checkpoints.begin_anew=true"
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
    overrides: Sequence[str] | None
    """Overrides of the run that began it; None if unknown."""

    @property
    def by_code_alone(self) -> bool:
        return not self.changed and bool(self.modules)

    @property
    def code(self) -> str:
        """The modules whose code differs, for a message."""
        return _shorten(self.modules)

    @property
    def begun_with(self) -> str:
        """``reward.weight 0.1 (now 0.2)`` for each value that differs; equal changes of equal keys are listed once."""
        named: dict[str, str] = {}
        for key in sorted(self.changed, key=lambda key: (key.count("."), key)):
            leaf, path = key.rpartition(".")[2], re.sub(r"(?:^|(?<=\.))config\.", "", key, count=1)
            named.setdefault(f"{leaf} {self.changed[key]}", f"{path} {self.changed[key]}".strip())
        return _shorten(sorted(named.values())) or f"other code in {_shorten(self.modules)}"

    def only(self, *beginnings: str) -> bool:
        """Whether only settings with these prefixes differ, of the stage or its parents."""
        own = [re.sub(r"^(?:\w+\.)*?(?=(?:config|files|parents)\.)", "", f"{key}.") for key in self.changed]
        return bool(own) and all(key.startswith(beginnings) for key in own)


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
    if (plan.folder / RESULT).exists():
        return plan
    found = [one for one in left_by_others(plan, []) if one.by_code_alone]
    if (newest := _newest_finished(found)) is not None:
        print(f"{plan.name}: code changed since {newest.folder} was made, in {newest.code}; it is reused")
        return replace(plan, fingerprint=newest.folder.name, folder=newest.folder)
    if found:
        _go_on(plan, max(found, key=lambda one: (one.folder == plan.folder, one.step or 0)))
    return plan


def stages_taken(config: DictConfig, *, elsewhere: Mapping[str, str] | None = None) -> dict[str, StagePlan]:
    """Returns the stages as a run of this configuration would use them, without renaming folders."""

    def with_finished(plan: StagePlan) -> StagePlan:
        newest = None if (plan.folder / RESULT).exists() else _newest_finished(left_by_others(plan, []))
        return plan if newest is None else replace(plan, fingerprint=newest.folder.name, folder=newest.folder)

    accept = with_finished if config.checkpoints.resume_changed_code else None
    return plan_stages(config, elsewhere=elsewhere, accept=accept)


def _newest_finished(found: Iterable[Left]) -> Left | None:
    """Returns the newest finished stage that differs only by code, if any."""
    done = (one for one in found if one.step is None and one.by_code_alone)
    return max(done, key=lambda one: (one.folder / RESULT).stat().st_mtime, default=None)


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
        write_manifest(plan, overrides=manifest["overrides"], earlier_code=earlier)
    print(f"{plan.name}: code changed since {left.folder} was started, in {left.code}; resuming nevertheless")


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


def check_unfinished(
    plans: Sequence[StagePlan], *, anew: bool, compared: bool, overrides: Sequence[str] | None = None
) -> None:
    """Refuses, before anything runs, new stages that were probably meant to resume unfinished ones. Rank 0 searches.

    Args:
        plans: all stages of the run.
        anew: start without this check.
        compared: the run is one of several whose settings, including devices, differ on purpose.
        overrides: overrides of this run; None if unknown.

    Raises:
        CheckpointError: if a stage is refused; on every rank.
    """
    looked = plans if this_rank() == 0 and not anew else ()
    refusals = (_refusal(plan, plans, compared=compared, overrides=overrides) for plan in looked)
    if sentence := from_first(next(filter(None, refusals), None)):
        raise CheckpointError(sentence)


def _refusal(
    plan: StagePlan, plans: Sequence[StagePlan], *, compared: bool, overrides: Sequence[str] | None
) -> str | None:
    if (plan.folder / RESULT).exists():
        return None
    found = [one for one in left_by_others(plan, plans) if one.step is not None]
    goes_on = bool(kept_checkpoints(plan.folder / CHECKPOINTS))
    for one in sorted(found, key=lambda one: (-(one.step or 0), one.folder)):
        if one.by_code_alone and (one.folder == plan.folder or not goes_on):
            return (
                f"{plan.name}: code changed since {one.folder} was started, in {one.code}; {ACCEPT} "
                f"resumes its checkpoint {one.step}, if no result depends on that; {ANEW} starts a new stage"
            )
    if goes_on:
        return None
    settings = [one for one in found if one.changed]
    if compared:
        unmeant = [one for one in settings if one.only(*UNASKED) and not one.only(DEVICES)]
    else:
        unmeant = [one for one in settings if one.only(*UNASKED) or _all_given(overrides, one.overrides)]
    if not unmeant:
        return None
    near = min(unmeant, key=lambda one: (len(one.changed), -(one.step or 0), one.folder))
    return (
        f"{plan.name}: {near.folder} is unfinished at checkpoint {near.step}, started with {near.begun_with}; "
        f"set that back to resume it, or start a new stage with {ANEW}"
    )


def _all_given(now: Sequence[str] | None, then: Sequence[str] | None) -> bool:
    """Whether all overrides of this run that affect results were also given then, for the same run."""
    if now is None or then is None:
        return False
    given, known = ({one for one in overrides if _group(one) not in NEUTRAL} for overrides in (now, then))
    return given <= known and not any(_group(one) in WHICH for one in known - given)


def _group(override: str) -> str:
    return re.split(r"[./=@]", override.lstrip("+~"))[0]


def begin(plan: StagePlan, plans: Sequence[StagePlan] = (), *, overrides: Sequence[str] | None = None) -> None:
    """Writes the manifest of a new stage and prints why no existing one is used. Only rank 0; ``plans``: all stages."""
    if this_rank() != 0:
        return
    found = left_by_others(plan, plans)
    if (newest := _newest_finished(found)) is not None:
        print(
            f"{plan.name}: code changed since {newest.folder} was made, in {newest.code}; it runs again "
            f"({ACCEPT} reuses it)"
        )
    elif unfinished := [one for one in found if one.step is not None]:
        near = min(unfinished, key=lambda one: (len(one.changed), one.folder))
        print(f"{plan.name}: {near.folder} remains unfinished; it was started with {near.begun_with}")
    write_manifest(plan, overrides=overrides)


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
        if not (then := read_manifest(folder)):  # renamed in the meantime
            continue
        changed, modules = _settings_changed(then, now, stages, known), _modules_changed(then, now, stages, known)
        if changed or modules:
            step = None if done else checkpoints[-1].step
            found.append(Left(folder=folder, step=step, changed=changed, modules=modules, overrides=then["overrides"]))
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
    named = flatten({name: part for name, part in parts.items() if part}, longest=None)
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

"""What a stage was begun with: written into its folder, and looked at when it is to go on or another begins beside it.

    stages/grpo/194b5949ff48/begun.json    {"config": …, "parents": …, "versions": …, "files": …, "code": …, "typed": …}

What decides the result is in the folder's name, the code and what was typed are not. A setting that is typed now and
was not then means another experiment: the stage begins anew in a folder of its own, and a line names what an unfinished
one beside it had instead. Where nobody typed what differs (a default was edited, an override forgotten), or it is data,
devices or versions alone, which often change without being meant, beginning anew has to be asked for: days of an
unfinished stage would be left lying. Code that changed without its version is in no name: what it would go on to is the
result of neither, so that has to be asked for, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import shorten
from typing import Any, NamedTuple

from contrastive_reasoning.distributed import from_first, this_rank
from experiments.mlflow_sync.describe import flatten
from experiments.run_folder import read_json
from experiments.stages.checkpoints import CHECKPOINTS, CheckpointError, kept
from experiments.stages.code_hash import changed_rooms, code_hashes
from experiments.stages.plan import StagePlan, named_things
from experiments.system.files import lock, write_json

BEGUN, RESULT, LOCK = "begun.json", "result.json", ".lock"
NAMED = ("config", "parents", "versions", "files")
"""What decides the folder's name."""
DEVICES = "config.trainer."
SILENT = ("files.", "versions.", DEVICES)
"""What may change though nobody meant another experiment: code of one's own is edited to be another."""
CODE = "code"
"""Files of one's own code, in a difference."""
TYPED = "typed"
NEUTRAL = ("output_dir", "checkpoints", "progress", "logger", "callbacks")
"""What may be typed that decides no result."""
WHICH = ("experiment", "name", "seed", "scale", "family", "task", "debug", "sweep", "arm")
"""What says which run it is: without it one means another run, and has forgotten nothing."""
CONFIG = re.compile(r"(?:^|(?<=\.))config\.")
ACCEPT, ANEW = "checkpoints.resume_changed_code=true", "checkpoints.begin_anew=true"
MOST_NAMED = 4
"""Differences that are told one by one."""
LONGEST = 60
"""Letters of a value that are told."""


def check_left(plans: Sequence[StagePlan], *, anew: bool, compared: bool, typed: Sequence[str] | None = None) -> None:
    """Before anything runs: may these stages begin beside the unfinished ones that there are? Rank 0 looks.

    Args:
        plans: all that the run needs.
        anew: begin, whatever is left lying.
        compared: the run is one of several that may differ by their settings, devices too, on purpose.
        typed: the overrides of this run; None: nobody knows.

    Raises:
        CheckpointError: on every rank, where one of those has checkpoints and differs by data, devices or versions
            alone, or by settings though nothing is typed now that was not typed then, its own or those of the stages
            that it builds on, unless ``anew`` accepts it.
    """
    looked = this_rank() == 0 and not anew
    if sentence := from_first(next(_left(plans, compared=compared, typed=typed), None) if looked else None):
        raise CheckpointError(sentence)


def begin(plan: StagePlan, above: Sequence[StagePlan] = (), *, typed: Sequence[str] | None = None) -> None:
    """Record what the stage begins with; say what the nearest unfinished one beside it had instead. Rank 0 does.

    ``above`` are the stages that it builds on, which may not have begun in this folder; ``typed`` the run's overrides.
    """
    if this_rank() == 0:
        if beside := _beside(plan, above, typed):
            near = min(beside, key=lambda one: (len(one.leaves), one.folder))
            print(f"{plan.name}: {near.folder} is unfinished and stays so, it was begun with {near.told}")
        write_json(plan.folder / BEGUN, _record(plan) | {TYPED: None if typed is None else list(typed)})


def go_on(plan: StagePlan, *, changed_code: bool) -> None:
    """Go on under the code that the stage was begun with, or under another one where ``changed_code`` accepts it.

    Raises:
        CheckpointError: on every rank, naming the rooms that have changed and the setting that accepts them.
    """
    then = read_json(plan.folder / BEGUN)
    changed = from_first(changed_rooms(plan.config, then.get("code", {})))
    if not changed:
        return
    told = f"{plan.name}: code changed since {plan.folder} was begun, in {', '.join(changed)} (versions did not)"
    if not changed_code:
        raise CheckpointError(
            f"{told}; where no result depends on it, go on with {ACCEPT}; remove the folder to begin anew"
        )
    print(f"{told}; going on all the same")
    if this_rank() == 0:
        earlier = [*then.get("earlier_code", []), then.get("code", {})]
        write_json(plan.folder / BEGUN, _record(plan) | {TYPED: then.get(TYPED), "earlier_code": earlier})


class _Other(NamedTuple):
    """An unfinished stage beside one that is to begin."""

    folder: Path
    leaves: tuple[str, ...]
    """What it was begun with instead."""
    silent: bool
    """Whether that is nothing but what is ``SILENT``."""
    devices: bool
    """Whether that is nothing but other devices, or another way to use them."""
    untyped: bool
    """Whether nobody typed it: what is typed now was typed then, and no code of one's own was edited."""

    @property
    def told(self) -> str:
        more = len(self.leaves) - MOST_NAMED
        if not self.leaves:
            return "values that read alike and are of another kind"
        return ", ".join([*self.leaves[:MOST_NAMED], *([f"{more} more"] if more > 0 else [])])


def _left(plans: Sequence[StagePlan], *, compared: bool, typed: Sequence[str] | None) -> Iterator[str]:
    """A sentence for each stage that would begin, and leave what it may have been meant to go on with."""
    for plan in plans:
        if (plan.folder / RESULT).exists() or kept(plan.folder / CHECKPOINTS):
            continue
        beside = _beside(plan, plans, typed)
        unmeant = [one for one in beside if one.silent or one.untyped]
        if compared:
            unmeant = [one for one in beside if one.silent and not one.devices]
        steps = {one: max(stop.step for stop in stops) for one in unmeant if (stops := kept(one.folder / CHECKPOINTS))}
        if steps:
            near = min(steps, key=lambda one: (len(one.leaves), -steps[one], one.folder))
            yield (
                f"{plan.name}: {near.folder} is unfinished at checkpoint {steps[near]}, begun with {near.told}; "
                f"set that back to go on, or begin anew beside it with {ANEW}"
            )


def _beside(plan: StagePlan, above: Sequence[StagePlan], typed: Sequence[str] | None) -> list[_Other]:
    known = {one.fingerprint: _record(one) for one in above}
    stages = plan.folder.parents[1]
    ours = _named(_record(plan), stages, known)
    found: list[_Other] = []
    for folder in _unfinished(plan):
        record = read_json(folder / BEGUN)
        changed = _changed(_named(record, stages, known), ours)
        own = [_own(key) for key in changed]
        silent = bool(own) and all(f"{key}.".startswith(SILENT) for key in own)
        devices = bool(own) and all(f"{key}.".startswith(DEVICES) for key in own)
        edited = any(key.startswith(f"{CODE}.") for key in own)
        untyped = bool(own) and not edited and _all_typed(typed, record.get(TYPED))
        leaves = tuple(differences(changed))
        found.append(_Other(folder=folder, leaves=leaves, silent=silent, devices=devices, untyped=untyped))
    return found


def _all_typed(now: Sequence[str] | None, then: Sequence[str] | None) -> bool:
    """Whether what is typed now, and may decide a result, was all typed then, for the same run."""
    if now is None or then is None:
        return False
    asked, known = ({one for one in typed if _root(one) not in NEUTRAL} for typed in (now, then))
    return asked <= known and not any(_root(one) in WHICH for one in known - asked)


def _root(override: str) -> str:
    return re.split(r"[./=@]", override.lstrip("+~"))[0]


def _own(key: str) -> str:
    """Without the stages above that it may be of: ``warm_start.config.trainer.devices``."""
    return re.sub(rf"^(?:\w+\.)*?(?=(?:{'|'.join((*NAMED, CODE))})\.)", "", key)


def _changed(then: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    """Key → ``0.1 (now 0.2)``, for all that are not the same."""
    keys = [key for key in then.keys() | now.keys() if then.get(key) != now.get(key)]
    return {key: f"{_said(then, key)} (now {_said(now, key)})" for key in keys}


def differences(changed: Mapping[str, str]) -> list[str]:
    """``reward.weight 0.1 (now 0.2)`` for each leaf that is not the same; one that stands in several places once."""
    told: dict[str, str] = {}
    for key in sorted(changed, key=lambda key: (key.count("."), key)):
        leaf = key.rpartition(".")[2]
        told.setdefault(f"{leaf} {changed[key]}", f"{re.sub(CONFIG, '', key, count=1)} {changed[key]}")
    return sorted(told.values())


def _record(plan: StagePlan) -> dict[str, Any]:
    return {name: getattr(plan, name) for name in NAMED} | {"code": code_hashes(plan.config)}


def _said(values: Mapping[str, str], key: str) -> str:
    return shorten(values.get(key, "absent"), LONGEST, placeholder="…")


def _named(record: Mapping[str, Any], stages: Path, known: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Dotted key → value of all that is in the folder's name; in a parent's place, what that was begun with."""
    paths = {name for _, name in named_things(record["config"])}
    data = {name: mark for name, mark in record["files"].items() if name in paths}
    code = {name: mark for name, mark in record["files"].items() if name not in paths}
    parts = {"config": record["config"], "versions": record["versions"], "files": data, CODE: code}
    named = flatten({name: part for name, part in parts.items() if part}, longest=None)
    for stage, mark in record["parents"].items():
        parent = known.get(mark) or read_json(stages / stage / mark / BEGUN)
        of_parent = _named(parent, stages, known) if parent else {"parents": str(mark)}
        named |= {f"{stage}.{key}": value for key, value in of_parent.items()}
    return named


def _unfinished(plan: StagePlan) -> list[Path]:
    """Stages of this kind that were stopped or killed: begun, without a result, and nobody works in them."""
    begun = [path.parent for path in plan.folder.parent.glob(f"*/{BEGUN}")]
    open_ones = [folder for folder in begun if folder != plan.folder and not (folder / RESULT).exists()]
    return [folder for folder in open_ones if not _at_work(folder)]


def _at_work(folder: Path) -> bool:
    with lock(folder / LOCK, wait=False) as free:
        return not free

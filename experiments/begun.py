"""What a stage was begun with: written into its folder, and looked at when it is to go on or another begins beside it.

    stages/grpo/194b5949ff48/begun.json    {"config": …, "parents": …, "versions": …, "files": …, "code": …}

All but the code is in the folder's name. Where a setting has changed, the stage begins anew in a folder of its own, and
a line names what an unfinished one beside it had instead. Where nothing but data, devices or versions have, which often
change without being meant, that has to be asked for: days of an unfinished stage would be left lying. Code that changed
without its version is in no name: what it would go on to is the result of neither, so that has to be asked for, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import shorten
from typing import Any, NamedTuple

from contrastive_reasoning.ranks import from_first, this_rank
from experiments.files import write_json
from experiments.kept_checkpoints import CHECKPOINTS, CheckpointError, kept
from experiments.lock import lock
from experiments.parameters import flatten
from experiments.rooms import changed_rooms, code_hashes
from experiments.run_tree import read_json
from experiments.stage_plan import StagePlan

BEGUN, RESULT, LOCK = "begun.json", "result.json", ".lock"
NAMED = ("config", "parents", "versions", "files")
"""What decides the folder's name."""
SILENT = ("files", "versions", "config.trainer")
"""What may change though nobody meant another experiment."""
ACCEPT, ANEW = "checkpoints.resume_changed_code=true", "checkpoints.begin_anew=true"
MOST_NAMED = 4
"""Differences that are told one by one."""
LONGEST = 60
"""Letters of a value that are told."""


def begin(plan: StagePlan, *, anew: bool) -> None:
    """Record what the stage begins with; say what the nearest unfinished one beside it had instead. Rank 0 does.

    Raises:
        CheckpointError: on every rank, where that one has checkpoints and differs by data, devices or versions alone,
            unless ``anew`` accepts it.
    """
    near = from_first(_nearest(plan) if this_rank() == 0 else None)
    if near is not None and near.checkpoint is not None and not anew:
        raise CheckpointError(
            f"{plan.name}: {near.folder} is unfinished at checkpoint {near.checkpoint}, begun with {near.told}; "
            f"set that back to go on, or begin anew beside it with {ANEW}"
        )
    if this_rank() == 0:
        if near is not None:
            print(f"{plan.name}: {near.folder} is unfinished and stays so, it was begun with {near.told}")
        write_json(plan.folder / BEGUN, _record(plan))


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
        write_json(plan.folder / BEGUN, _record(plan) | {"earlier_code": earlier})


class _Near(NamedTuple):
    folder: str
    told: str
    """What it was begun with."""
    checkpoint: int | None
    """The step of its last one, where it differs by what is ``SILENT`` alone."""


def _nearest(plan: StagePlan) -> _Near | None:
    """The unfinished stage beside this one that differs in least; None where there is none."""
    ours = _named(_record(plan))
    found = [(_changed(_named(read_json(folder / BEGUN)), ours), folder) for folder in _unfinished(plan)]
    if not found:
        return None
    changed, folder = min(found, key=lambda one: (len(one[0]), one[1]))
    leaves = differences(changed)
    more = len(leaves) - MOST_NAMED
    told = [*leaves[:MOST_NAMED], *([f"{more} more"] if more > 0 else [])]
    silent = all(any(f"{key}.".startswith(f"{name}.") for name in SILENT) for key in changed)
    last = max((one.step for one in kept(folder / CHECKPOINTS)), default=None) if silent else None
    return _Near(folder=str(folder), told=", ".join(told), checkpoint=last)


def _changed(then: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    """Key → ``0.1 (now 0.2)``, for all that are not the same."""
    keys = [key for key in then.keys() | now.keys() if then.get(key) != now.get(key)]
    return {key: f"{_said(then, key)} (now {_said(now, key)})" for key in keys}


def differences(changed: Mapping[str, str]) -> list[str]:
    """``reward.weight 0.1 (now 0.2)`` for each leaf that is not the same; one that stands in several places once."""
    told: dict[str, str] = {}
    for key in sorted(changed, key=lambda key: (key.count("."), key)):
        leaf = key.rpartition(".")[2]
        told.setdefault(f"{leaf} {changed[key]}", f"{key.removeprefix('config.')} {changed[key]}")
    return sorted(told.values())


def _record(plan: StagePlan) -> dict[str, Any]:
    return {name: getattr(plan, name) for name in NAMED} | {"code": code_hashes(plan.config)}


def _said(values: Mapping[str, str], key: str) -> str:
    return shorten(values.get(key, "absent"), LONGEST, placeholder="…")


def _named(record: Mapping[str, Any]) -> dict[str, str]:
    return flatten({name: record[name] for name in NAMED if record[name]})


def _unfinished(plan: StagePlan) -> list[Path]:
    """Stages of this kind that were stopped or killed: begun, without a result, and nobody works in them."""
    begun = [path.parent for path in plan.folder.parent.glob(f"*/{BEGUN}")]
    open_ones = [folder for folder in begun if folder != plan.folder and not (folder / RESULT).exists()]
    return [folder for folder in open_ones if not _at_work(folder)]


def _at_work(folder: Path) -> bool:
    with lock(folder / LOCK, wait=False) as free:
        return not free

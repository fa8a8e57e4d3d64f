"""What a stage was begun with: written into its folder, and looked at when it is to go on or another begins beside it.

    stages/grpo/194b5949ff48/begun.json    {"config": …, "parents": …, "versions": …, "files": …, "code": …}

All but the code is in the folder's name. Where one of these has changed, the stage begins anew in a folder of its own,
and a line names what an unfinished one beside it had instead. Code that changed without its version is in no name: what
it would go on to is the result of neither, so that has to be asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import shorten
from typing import Any

from contrastive_reasoning.ranks import from_first, this_rank
from experiments.files import write_json
from experiments.kept_checkpoints import CheckpointError
from experiments.lock import lock
from experiments.parameters import flatten
from experiments.rooms import changed_rooms, code_hashes
from experiments.run_tree import read_json
from experiments.stage_plan import StagePlan

BEGUN, RESULT, LOCK = "begun.json", "result.json", ".lock"
NAMED = ("config", "parents", "versions", "files")
"""What decides the folder's name."""
ACCEPT = "checkpoints.resume_changed_code=true"
MOST_NAMED = 4
"""Differences that are told one by one."""
LONGEST = 60
"""Letters of a value that are told."""


def begin(plan: StagePlan) -> None:
    """Record what the stage begins with; say what the nearest unfinished one beside it had instead. Rank 0 does."""
    if this_rank() == 0:
        if line := beside(plan):
            print(line)
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


def beside(plan: StagePlan) -> str | None:
    """A line on the unfinished stage beside this one that differs in least; None where there is none."""
    ours = _named(_record(plan))
    found = [(differences(_named(read_json(folder / BEGUN)), ours), folder) for folder in _unfinished(plan)]
    if not found:
        return None
    changed, folder = min(found, key=lambda one: (len(one[0]), one[1]))
    more = len(changed) - MOST_NAMED
    told = [*changed[:MOST_NAMED], *([f"{more} more"] if more > 0 else [])]
    return f"{plan.name}: {folder} is unfinished and stays so, it was begun with {', '.join(told)}"


def differences(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """``reward.weight 0.1 (now 0.2)`` for each leaf that is not the same; one that stands in several places once."""
    keys = [key for key in then.keys() | now.keys() if then.get(key) != now.get(key)]
    told: dict[str, str] = {}
    for key in sorted(keys, key=lambda key: (key.count("."), key)):
        change = f"{_said(then, key)} (now {_said(now, key)})"
        told.setdefault(f"{key.rpartition('.')[2]} {change}", f"{key.removeprefix('config.')} {change}")
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

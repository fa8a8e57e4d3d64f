"""Records of the composed configurations of the arms of each study in ``conf/study/``.

    python -m tests.study_records NAME …     records studies again, for example after a rename

A study names experiments and groups, whose values may change later. Its record, ``tests/cases/studies/NAME.json``,
holds the values with which its results were measured. A changed default thus cannot change the meaning of a study
without a failing test.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from experiments.config.composition import REFERENCE
from experiments.jobs.study_plan import Study, find_study
from tests.composed_configs import flat
from tests.config_kit import composed

FOLDER = Path(__file__).resolve().parent / "cases" / "studies"
NOT_METHOD = ("name", "output_dir", "keep_freed_memory", "logger.", "progress.", "callbacks.", "checkpoints.", "hydra.")
"""Names, outputs and callbacks of a run."""
HOW_OFTEN = "log_every"
"""Key of a budget: how often training metrics are recorded, which changes no result."""
OTHER_SETTINGS = "suite.settings."
DECIDES = "suite.settings.main."
"""The setting on which a study compares; other settings are measured in addition."""
OF_THE_START = ("policy.pretrained", "warm_start.", "budget.warm_start.")
"""Not set by an arm if the study has a start."""

Leaves = dict[str, Any]
Record = Mapping[str, Any]


def leaves(*overrides: str) -> Leaves:
    """Returns dotted path → value of everything that affects the result of a run with these overrides.

    A node that only refers to another one (``module.policy: ${policy}``) is omitted: its values appear where they are
    set.
    """
    config = composed(*overrides)
    whole = OmegaConf.to_container(config, resolve=True)
    repeated = tuple(path for path, value in flat(OmegaConf.to_container(config)) if _repeats(config, path, value))
    return {path: value for path, value in flat(whole) if decides(path) and not path.startswith(repeated)}


def _repeats(config: Any, path: str, value: Any) -> bool:
    refers = isinstance(value, str) and REFERENCE.fullmatch(value) is not None  # not a merge
    return refers and OmegaConf.is_config(OmegaConf.select(config, path))


def decides(path: str) -> bool:
    """Whether the value at this path can change what a study measures."""
    beside = path.startswith(OTHER_SETTINGS) and not path.startswith(DECIDES)
    return not beside and not path.startswith(NOT_METHOD) and path.rpartition(".")[2] != HOW_OFTEN


def arms_of(study: Study) -> dict[str, Leaves]:
    """Returns the leaves of each arm, and of the start if there is one."""
    arms = {name: leaves(*study.common, *arm.overrides, "name=s") for name, arm in study.arms.items()}
    if study.start is None:
        return arms
    arms = {name: {path: arm[path] for path in arm if not path.startswith(OF_THE_START)} for name, arm in arms.items()}
    return {"start": leaves(*study.common, *study.start.overrides, "name=s")} | arms


def record_of(study: Study) -> Record:
    """Returns the most frequent value at each path, and for each arm its other values and its missing paths."""
    arms = arms_of(study)
    paths = sorted({path for arm in arms.values() for path in arm})
    most = {path: _most_frequent([arm[path] for arm in arms.values() if path in arm]) for path in paths}
    return {
        "most": most,
        "arms": {
            name: {
                "own": {path: value for path, value in arm.items() if most[path] != value},
                "lacks": [path for path in paths if path not in arm],
            }
            for name, arm in arms.items()
        },
    }


def _most_frequent(values: list[Any]) -> Any:
    return max(values, key=values.count)


def changes(record: Record, study: Study) -> list[str]:
    """Returns a line for each recorded value that an arm no longer has. New values are no change."""
    now = arms_of(study)
    found = []
    for name, arm in record["arms"].items():
        if name not in now:
            found.append(f"{study.name}: arm {name} is gone")
            continue
        recorded = {**record["most"], **arm["own"]}
        for path in recorded.keys() - set(arm["lacks"]):
            value = now[name].get(path, "no such key")
            if value != recorded[path]:
                found.append(f"{study.name}.{name}: {path}: {recorded[path]!r} -> {value!r}")
    return sorted(found)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        text = json.dumps(record_of(find_study(name)), indent=1, sort_keys=True)
        (FOLDER / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")

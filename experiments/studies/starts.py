"""The warm starts of a study: where each lies, and what it holds where it lies on another machine.

The settings of a run hold the hash of the policy that it begins from. MLflow has it: every stage leaves it with its
result. A start may have been trained more than once, under other code: then runs from each of them count.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from experiments.import_paths import current
from experiments.mlflow_sync import TrackedRun, Tracker
from experiments.mlflow_sync.describe import flatten
from experiments.stages.plan import NAMING, POLICY, StagePlan
from experiments.stages.resume import stages_taken
from experiments.stages.stage_manifest import CONTENTS, RESULT
from experiments.studies.jobs import ArmJob, composed, start_jobs
from experiments.studies.plan import Study
from experiments.system.checksums import content_hash


@dataclass(frozen=True, kw_only=True)
class Contents:
    """What the policies of a study's warm starts hold."""

    known: Mapping[str, Sequence[str]]
    """Path of a policy → hashes of what was trained for it, here or by MLflow."""
    unknown: Mapping[int, str]
    """By seed of the arms, the policy that is not here, and of which MLflow does not say it either."""


@cache
def start_plan(start: ArmJob) -> StagePlan:
    """The one stage of a warm start."""
    *_, plan = stages_taken(composed(start)).values()
    return plan


def start_policies(study: Study) -> dict[int, str]:
    """By seed, where the warm start that it begins from leaves its policy."""
    return {seed: str(start_plan(job).folder / POLICY) for seed, job in start_jobs(study).items()}


def start_contents(tracker: Tracker, study: Study) -> Contents:
    """What is known of the starts."""
    known, unknown = dict[str, Sequence[str]](), dict[int, str]()
    for seed, job in start_jobs(study).items():
        folder = start_plan(job).folder / POLICY
        if str(folder) not in known:
            here = [content_hash(folder)] if folder.exists() else []
            known[str(folder)] = list(dict.fromkeys([*here, *_tracked(tracker, study, start_plan(job))]))
        if not known[str(folder)]:
            unknown[seed] = str(folder)
    return Contents(known=known, unknown=unknown)


def _tracked(tracker: Tracker, study: Study, plan: StagePlan) -> Iterator[str]:
    """Of the study's own runs of the stage; where there are none, of others': another may have made the same start."""
    for names in ([study.name], tracker.experiments()):
        runs = [run for run in tracker.runs(names, kind="stage") if same_stage(run, plan)]
        found = [left for run in runs if (left := _left(tracker, run)) is not None]
        if found:
            yield from found
            return


def same_stage(run: TrackedRun, plan: StagePlan) -> bool:
    """Whether a tracked run is of this stage's settings, under whatever code.

    Of one that was recorded before settings had a hash, its parameters are compared.
    """
    if run.tags.get("stage") != plan.name:
        return False
    if "settings" in run.tags:
        return run.tags["settings"] == plan.settings
    return run.tags.get("fingerprint") == plan.fingerprint or same_parameters(run.params, plan.config)


def same_parameters(recorded: Mapping[str, str], config: Mapping[str, Any]) -> bool:
    """Whether all keys that both have are alike; paths are not compared, import paths are taken as today's."""
    now = flatten(config)
    keys = [key for key in recorded.keys() & now.keys() if key.rpartition(".")[2] not in NAMING]
    return bool(keys) and all(current(recorded[key]) == current(now[key]) for key in keys)


def _left(tracker: Tracker, run: TrackedRun) -> str | None:
    """The hash of the policy that a stage left; None for one of before it was kept."""
    if RESULT not in tracker.artifacts.files(run.run_id):
        return None
    return json.loads(tracker.artifacts.read(run.run_id, RESULT)).get(CONTENTS, {}).get(POLICY)

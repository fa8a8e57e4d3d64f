"""The warm starts of a study: where each lies, and what it is where it lies on another machine.

A run's fingerprint holds the hash of the policy that it begins from. Of one that is not here MLflow has it: every stage
leaves it with its result.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from omegaconf import DictConfig

from experiments.stages.experiment import needed
from experiments.stages.plan import POLICY, StagePlan, plan_stage
from experiments.stages.result import CONTENTS
from experiments.stages.resume import RESULT
from experiments.study.jobs import Job, composed, start_jobs
from experiments.study.plan import Study
from experiments.track import Tracker
from experiments.tracking.tracked_run import TrackedRun


@dataclass(frozen=True, kw_only=True)
class Elsewhere:
    """Policies of warm starts that are not on this machine."""

    contents: Mapping[str, str]
    """Policy → hash of what it is, by MLflow."""
    unknown: Mapping[int, str]
    """By seed of the arms, the policy of which MLflow does not say it either."""


def stage_plans(config: DictConfig, elsewhere: Mapping[str, str] | None = None) -> Iterator[StagePlan]:
    """The stages that an experiment will run or reuse, in order.

    Args:
        config: of the experiment.
        elsewhere: hashes of what it names and is not on this machine.
    """
    plans: dict[str, StagePlan] = {}
    for stage in config.stages:
        if needed(stage, config):
            plans[stage] = plan_stage(stage, config, plans, elsewhere=elsewhere)
            yield plans[stage]


@cache
def start_plan(start: Job) -> StagePlan:
    """The one stage of a warm start."""
    *_, plan = stage_plans(composed(start))
    return plan


def start_policies(study: Study) -> dict[int, str]:
    """By seed, where the warm start that it begins from leaves its policy."""
    return {seed: str(start_plan(job).folder / POLICY) for seed, job in start_jobs(study).items()}


def starts_elsewhere(tracker: Tracker, study: Study) -> Elsewhere:
    """What is known of the starts that are not on this machine."""
    contents, unknown = dict[str, str](), dict[int, str]()
    for seed, job in start_jobs(study).items():
        folder = start_plan(job).folder / POLICY
        if folder.exists() or str(folder) in contents:
            continue
        found = _content(tracker, study, start_plan(job))
        if found is None:
            unknown[seed] = str(folder)
        else:
            contents[str(folder)] = found
    return Elsewhere(contents=contents, unknown=unknown)


def _content(tracker: Tracker, study: Study, plan: StagePlan) -> str | None:
    """As the newest run of the stage says; another study may have made the same start."""
    for names in ([study.name], tracker.experiments()):
        for run in reversed(tracker.runs(names, kind="stage")):
            if run.tags.get("fingerprint") == plan.fingerprint and (found := _left(tracker, run)) is not None:
                return found
    return None


def _left(tracker: Tracker, run: TrackedRun) -> str | None:
    """The hash of the policy that a stage left; None for one of before it was kept."""
    if RESULT not in tracker.artifacts.files(run.run_id):
        return None
    return json.loads(tracker.artifacts.read(run.run_id, RESULT)).get(CONTENTS, {}).get(POLICY)

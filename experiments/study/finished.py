"""Which jobs of a study are done: MLflow has their runs, finished, with the fingerprint that they would have today."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hydra import compose, initialize_config_module
from omegaconf import DictConfig

from experiments.stage_plan import StagePlan, plan_stage
from experiments.stages import needed
from experiments.study.jobs import Job
from experiments.study.plan import Study
from experiments.track import RunRecord, Tracker


class Mark(NamedTuple):
    """What a finished job is recognised by."""

    arm: str
    seed: str
    fingerprint: str
    """Of its last stage, which the earlier ones are part of."""


def composed(job: Job) -> DictConfig:
    """The configuration of a job."""
    with initialize_config_module("conf", version_base="1.3"):
        return compose("config", list(job.overrides))


def stage_plans(config: DictConfig) -> Iterator[StagePlan]:
    """The stages that an experiment will run or reuse, in order."""
    plans: dict[str, StagePlan] = {}
    for stage in config.stages:
        if needed(stage, config):
            plans[stage] = plan_stage(stage, config, plans)
            yield plans[stage]


def mark_of(job: Job) -> Mark:
    """The mark that a job will leave."""
    *_, last = stage_plans(composed(job))
    return Mark(job.arm, str(job.seed), last.fingerprint)


def finished_marks(tracker: Tracker, study: Study) -> set[Mark]:
    """The marks of all jobs of the study that have ended well."""
    done = {run.run_id: run for run in study_runs(tracker, study.name)}
    stages = tracker.runs([study.name], kind="stage")
    return {_mark(run) for run in stages if run.status == "FINISHED" and run.tags["mlflow.parentRunId"] in done}


def study_runs(tracker: Tracker, name: str) -> list[RunRecord]:
    """The finished runs of a study's arms, oldest first."""
    runs = tracker.runs([name], kind="experiment")
    return [run for run in runs if run.status == "FINISHED" and "arm" in run.tags]


def still_to_do(jobs: Sequence[Job], done: set[Mark]) -> list[Job]:
    return [job for job in jobs if mark_of(job) not in done]


def _mark(stage: RunRecord) -> Mark:
    return Mark(stage.tags["arm"], stage.tags["seed"], stage.tags["fingerprint"])

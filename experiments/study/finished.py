"""Which jobs of a study are done: MLflow has their runs, finished, with the fingerprint that they would have today.

A run with another one, of an older configuration or older code, is neither reused nor compared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cache
from typing import NamedTuple

from omegaconf import DictConfig

from experiments.stage.plan import StagePlan, plan_stage
from experiments.stage.wiring import POLICY
from experiments.stages import needed
from experiments.study.jobs import Job, composed, jobs_of, start_jobs
from experiments.study.plan import START, Study, StudyError
from experiments.track import Tracker
from experiments.tracking.tracked_run import TrackedRun


class Mark(NamedTuple):
    """What a finished job is recognised by."""

    arm: str
    seed: str
    fingerprint: str
    """Of its last stage, which the earlier ones are part of."""


def stage_plans(config: DictConfig) -> Iterator[StagePlan]:
    """The stages that an experiment will run or reuse, in order."""
    plans: dict[str, StagePlan] = {}
    for stage in config.stages:
        if needed(stage, config):
            plans[stage] = plan_stage(stage, config, plans)
            yield plans[stage]


@cache  # a second or two each, and asked for twice: before the jobs run, and by the report
def mark_of(job: Job) -> Mark:
    """The mark that a job will leave."""
    *_, last = stage_plans(composed(job))
    return Mark(job.arm, str(job.seed), last.fingerprint)


@cache
def start_plan(start: Job) -> StagePlan:
    """The one stage of a warm start."""
    *_, plan = stage_plans(composed(start))
    return plan


def start_policies(study: Study) -> dict[int, str]:
    """By seed, where the warm start that it begins from leaves its policy."""
    return {seed: str(start_plan(job).folder / POLICY) for seed, job in start_jobs(study).items()}


def todays_jobs(study: Study) -> list[Job]:
    """All jobs, from the policies that they would begin from today."""
    return jobs_of(study, start_policies(study))


def todays_marks(tracker: Tracker, study: Study) -> set[Mark]:
    """The marks of today's jobs, as far as their arm and seed have a finished run of any configuration."""
    there = {(run.tags["arm"], run.tags["seed"]) for run in study_runs(tracker, study.name)}
    return {mark_of(job) for job in todays_jobs(study) if (job.arm, str(job.seed)) in there}


def finished_marks(tracker: Tracker, study: Study) -> set[Mark]:
    """The marks of all jobs of the study that have ended well."""
    done = {run.run_id: run for run in study_runs(tracker, study.name)}
    stages = tracker.runs([study.name], kind="stage")
    return {_mark(run) for run in stages if run.status == "FINISHED" and run.tags["mlflow.parentRunId"] in done}


def study_runs(tracker: Tracker, name: str) -> list[TrackedRun]:
    """The finished runs of a study's arms, oldest first."""
    runs = tracker.runs([name], kind="experiment")
    return [run for run in runs if run.status == "FINISHED" and "arm" in run.tags]


def by_configuration(
    tracker: Tracker, study: Study, marks: Collection[Mark]
) -> tuple[list[TrackedRun], list[TrackedRun]]:
    """The finished runs of arms that have one of ``marks``, and all others; each oldest first."""
    stages = tracker.runs([study.name], kind="stage")
    of_today = {stage.tags["mlflow.parentRunId"] for stage in stages if "arm" in stage.tags and _mark(stage) in marks}
    runs = [run for run in study_runs(tracker, study.name) if run.tags["arm"] != START]
    return [run for run in runs if run.run_id in of_today], [run for run in runs if run.run_id not in of_today]


def counted(tracker: Tracker, study: Study, marks: Collection[Mark]) -> tuple[list[TrackedRun], list[TrackedRun]]:
    """``by_configuration``, where some run counts.

    Raises:
        StudyError: where MLflow has no run of the study, or none that counts.
    """
    if study.name not in tracker.experiments():
        raise StudyError(f"No run of {study.name} in MLflow at {tracker.address}: {study.command}")
    runs, others = by_configuration(tracker, study, marks)
    if others and not runs:
        raise StudyError(
            f"{study.name}: {len(others)} runs have finished, none of today's configuration: since then a key, a code "
            f"VERSION or the policy they begin from has changed; {study.command} runs them anew"
        )
    return runs, others


def still_to_do(jobs: Sequence[Job], done: set[Mark]) -> list[Job]:
    return [job for job in jobs if mark_of(job) not in done]


def _mark(stage: TrackedRun) -> Mark:
    return Mark(stage.tags["arm"], stage.tags["seed"], stage.tags["fingerprint"])

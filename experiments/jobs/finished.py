"""Which finished runs of a study count, and which of its jobs are still to do.

A job is done if a finished run has the fingerprint that the job would have today; after a change of code it runs again.
A report counts every run with today's settings, under any code, and names the code if it differs.

The settings of a run contain the hash of the policy from which it starts. If a warm start was trained several times
under different code, runs from each of them count. Their policies must be here, in ``stages/warm_start/``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from experiments.jobs.study_jobs import ArmJob, compose_job, jobs_of, start_jobs
from experiments.jobs.study_plan import BEGUN_FROM, START, Study, StudyError
from experiments.mlflow_sync import TrackedRun, Tracker
from experiments.run_folder.reader import POLICY, RESULT
from experiments.stages.plan import StagePlan
from experiments.stages.resume import stages_taken
from experiments.stages.stage_manifest import read_manifest

MOST_NAMED = 3


class Mark(NamedTuple):
    """Identifies a finished job."""

    arm: str
    seed: str
    stage: str
    """Settings hash of its last stage, which includes those of the earlier stages."""


class Today(NamedTuple):
    """Determines which runs count today."""

    marks: Collection[Mark]
    missing: Mapping[int, str]
    """Seed → path of a warm-start policy that is not here, also not from other code. Its runs cannot be matched."""


class Counted(NamedTuple):
    """The finished runs of a study's arms, oldest first."""

    runs: Sequence[TrackedRun]
    """Those that count."""
    others: Sequence[TrackedRun]
    missing: Mapping[int, str]
    """See :class:`Today`."""


@cache  # takes one or two seconds, and is needed before the jobs run and by the report
def last_stage(job: ArmJob) -> StagePlan:
    """Plans the stages of a job and returns the last one."""
    return [*stages_taken(compose_job(job)).values()][-1]


def mark_of(job: ArmJob) -> Mark:
    return Mark(job.arm, str(job.seed), last_stage(job).settings)


def start_policies(study: Study) -> dict[int, str]:
    """Returns seed → path of the policy of its warm start."""
    return {seed: str(last_stage(job).folder / POLICY) for seed, job in start_jobs(study).items()}


def todays_jobs(study: Study) -> list[ArmJob]:
    """Returns all jobs, with today's warm-start policies."""
    return jobs_of(study, start_policies(study))


def today(tracker: Tracker, study: Study) -> Today:
    """Returns the marks of runs that count today, for all (arm, seed) pairs with any finished run."""
    there = {(run.tags["arm"], run.tags["seed"]) for run in _finished_runs(tracker, study)}
    jobs = [job for job in todays_jobs(study) if (job.arm, str(job.seed)) in there]
    starts = {seed: last_stage(job) for seed, job in start_jobs(study).items()} if jobs else {}
    left = {seed: _left_policies(plan) for seed, plan in starts.items()}
    marks = set[Mark]()
    for job in jobs:
        # at the end, since of two overrides of one key the last counts
        begun = [replace(job, overrides=(*job.overrides, f"{BEGUN_FROM}={one}")) for one in left.get(job.seed, [])]
        marks |= {mark_of(one) for one in begun or [job]}
    return Today(marks, {seed: str(starts[seed].folder / POLICY) for seed, found in left.items() if not found})


def _left_policies(plan: StagePlan) -> list[Path]:
    """Returns the policies that finished stages with these settings left on this machine, under any code."""
    results = sorted(plan.folder.parent.glob(f"*/{RESULT}"))
    return [one.parent / POLICY for one in results if read_manifest(one.parent).get("settings") == plan.settings]


def counted_runs(tracker: Tracker, study: Study, which: Today) -> Counted:
    """Returns the finished runs of the study's arms; ``which``: those that count.

    Raises:
        StudyError: if MLflow has no run of the study, or only finished runs that do not count.
    """
    if study.name not in tracker.experiments():
        raise StudyError(f"No run of {study.name} in MLflow at {tracker.address}: {study.command}")
    stages, finished = tracker.runs([study.name], kind="stage"), _finished_runs(tracker, study)
    counting = {one.tags["mlflow.parentRunId"] for one in stages if "arm" in one.tags and _mark(one) in which.marks}
    runs = [run for run in finished if run.run_id in counting]
    others = [run for run in finished if run.run_id not in counting]
    if others and not runs:
        why = (
            "none of today's configuration: a key, the data or their initial policy has changed since; "
            f"{study.command} runs them again"
        )
        if which.missing:
            lacking = lacking_starts(which.missing)
            why = f"and it is unknown whether they have today's configuration: {lacking}; copy it here"
        raise StudyError(f"{study.name}: {len(others)} runs have finished, {why}")
    return Counted(runs, others, which.missing)


def lacking_starts(missing: Mapping[int, str]) -> str:
    """Returns a phrase on the missing policies; ``missing``: see :class:`Today`."""
    policies = list(dict.fromkeys(missing.values()))[:MOST_NAMED]
    return f"no policy of their warm start is here, such as {', '.join(policies)}"


def still_to_do(tracker: Tracker, study: Study, jobs: Sequence[ArmJob]) -> list[ArmJob]:
    """Returns the jobs without a finished run of their fingerprint, which includes code."""
    ended = {run.run_id for run in _finished_runs(tracker, study)}
    done = {
        (stage.tags["arm"], stage.tags["seed"], stage.tags["fingerprint"])
        for stage in tracker.runs([study.name], kind="stage")
        if stage.tags["mlflow.parentRunId"] in ended and stage.status == "FINISHED"
    }
    return [job for job in jobs if (job.arm, str(job.seed), last_stage(job).fingerprint) not in done]


def _finished_runs(tracker: Tracker, study: Study) -> list[TrackedRun]:
    """Returns the finished runs of the study's arms, oldest first."""
    runs = tracker.runs([study.name], kind="experiment")
    return [run for run in runs if run.status == "FINISHED" and run.tags.get("arm", START) != START]


def _mark(stage: TrackedRun) -> Mark:
    # a stage that was sent without its manifest has no settings, and never counts
    return Mark(stage.tags["arm"], stage.tags["seed"], stage.tags.get("settings", ""))

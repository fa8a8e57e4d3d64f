"""Which jobs of a study are done: MLflow has their runs, finished, with the fingerprint that they would have today.

A run with another one, of an older configuration or older code, is neither reused nor compared.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from experiments.study.jobs import Job, composed, jobs_of
from experiments.study.plan import START, Study, StudyError
from experiments.study.starts import Elsewhere, stage_plans, start_policies, starts_elsewhere
from experiments.track import Tracker
from experiments.tracking.tracked_run import TrackedRun

MOST_NAMED = 3


class Mark(NamedTuple):
    """What a finished job is recognised by."""

    arm: str
    seed: str
    fingerprint: str
    """Of its last stage, which the earlier ones are part of."""


class Today(NamedTuple):
    """What tells which runs count."""

    marks: Collection[Mark]
    missing: Mapping[int, str]
    """By seed the policy of a start that is neither here nor known: of runs from it nothing can be told."""


@cache  # a second or two each, and asked for twice: before the jobs run, and by the report
def mark_of(job: Job, elsewhere: Sequence[tuple[str, str]] = ()) -> Mark:
    """The mark that a job will leave; ``elsewhere``: of policies on another machine the hash of what they are."""
    *_, last = stage_plans(composed(job), dict(elsewhere))
    return Mark(job.arm, str(job.seed), last.fingerprint)


def todays_jobs(study: Study) -> list[Job]:
    """All jobs, from the policies that they would begin from today."""
    return jobs_of(study, start_policies(study))


def today(tracker: Tracker, study: Study) -> Today:
    """By what runs count today, as far as their arm and seed have a finished run of any configuration."""
    there = {(run.tags["arm"], run.tags["seed"]) for run in study_runs(tracker, study.name)}
    jobs = [job for job in todays_jobs(study) if (job.arm, str(job.seed)) in there]
    starts = starts_elsewhere(tracker, study) if jobs else Elsewhere(contents={}, unknown={})
    known = tuple(sorted(starts.contents.items()))
    return Today(marks={mark_of(job, known) for job in jobs}, missing=starts.unknown)


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


def counted(
    tracker: Tracker, study: Study, marks: Collection[Mark], missing: Mapping[int, str]
) -> tuple[list[TrackedRun], list[TrackedRun]]:
    """``by_configuration``, where some run counts; ``missing``: see :class:`Today`.

    Raises:
        StudyError: where MLflow has no run of the study, or none that counts.
    """
    if study.name not in tracker.experiments():
        raise StudyError(f"No run of {study.name} in MLflow at {tracker.address}: {study.command}")
    runs, others = by_configuration(tracker, study, marks)
    if others and not runs and missing:
        raise StudyError(
            f"{study.name}: {len(others)} runs have finished, and whether they are of today's configuration cannot be "
            f"told: {lacking_starts(missing)}; copy it here"
        )
    if others and not runs:
        raise StudyError(
            f"{study.name}: {len(others)} runs have finished, none of today's configuration: since then a key, a code "
            f"VERSION or the policy they begin from has changed; {study.command} runs them anew"
        )
    return runs, others


def lacking_starts(missing: Mapping[int, str]) -> str:
    """Which policies are not there; ``missing``: see :class:`Today`."""
    policies = list(dict.fromkeys(missing.values()))
    more = f" and {len(policies) - MOST_NAMED} more" if len(policies) > MOST_NAMED else ""
    named = f"{', '.join(policies[:MOST_NAMED])}{more}"
    return f"the warm start they began from is not on this machine ({named}), nor does MLflow say what it was"


def still_to_do(jobs: Sequence[Job], done: set[Mark]) -> list[Job]:
    return [job for job in jobs if mark_of(job) not in done]


def _mark(stage: TrackedRun) -> Mark:
    return Mark(stage.tags["arm"], stage.tags["seed"], stage.tags["fingerprint"])

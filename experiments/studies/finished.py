"""Which runs of a study are done and count, by what MLflow has of them.

A job is done where a finished run has the fingerprint that it would have today: what was made by other code is made
again. A report counts every run of today's settings, whatever code made it, and names the code where it differs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from experiments.mlflow_sync import TrackedRun, Tracker
from experiments.stages.plan import StagePlan
from experiments.stages.resume import stages_taken
from experiments.studies.jobs import ArmJob, composed, jobs_of
from experiments.studies.plan import START, Study, StudyError
from experiments.studies.starts import Contents, same_stage, start_contents, start_policies

MOST_NAMED = 3


class Mark(NamedTuple):
    """What a finished job is recognised by."""

    arm: str
    seed: str
    stage: str
    """The settings of its last stage, which the earlier ones are part of; the fingerprint where the code counts too."""


class Today(NamedTuple):
    """What tells which runs count."""

    marks: Collection[Mark]
    missing: Mapping[int, str]
    """By seed the policy of a start that is neither here nor known: of runs from it nothing can be told."""


@cache  # a second or two each, and asked for twice: before the jobs run, and by the report
def planned(job: ArmJob, elsewhere: Sequence[tuple[str, str]] = ()) -> list[StagePlan]:
    """The stages of a job; ``elsewhere``: hashes of policies that it names, whatever lies there on this machine."""
    return list(stages_taken(composed(job), elsewhere=dict(elsewhere)).values())


def mark_of(job: ArmJob, elsewhere: Sequence[tuple[str, str]] = ()) -> Mark:
    """The mark by which a report knows a run of the job."""
    return Mark(job.arm, str(job.seed), planned(job, elsewhere)[-1].settings)


def todays_jobs(study: Study) -> list[ArmJob]:
    """All jobs, from the policies that they would begin from today."""
    return jobs_of(study, start_policies(study))


def today(tracker: Tracker, study: Study) -> Today:
    """By what runs count today, as far as their arm and seed have a finished run of any configuration."""
    runs = [run for run in study_runs(tracker, study.name) if run.tags["arm"] != START]
    there = {(run.tags["arm"], run.tags["seed"]) for run in runs}
    jobs = [job for job in todays_jobs(study) if (job.arm, str(job.seed)) in there]
    starts = start_contents(tracker, study) if jobs else Contents(known={}, unknown={})
    policies = start_policies(study)
    marks: set[Mark] = set()
    for job in jobs:
        policy = policies.get(job.seed)
        contents = starts.known.get(policy, []) if policy else []
        marks |= {mark_of(job, ((str(policy), content),)) for content in contents} or {mark_of(job)}
    return Today(marks=marks | _marks_of_earlier_versions(tracker, study, jobs), missing=starts.unknown)


def _marks_of_earlier_versions(tracker: Tracker, study: Study, jobs: Sequence[ArmJob]) -> set[Mark]:
    """Of runs that were recorded before settings had a hash: all of their stages have the parameters of today's."""
    by_run: dict[str, dict[str, TrackedRun]] = {}
    for stage in tracker.runs([study.name], kind="stage"):
        if "settings" not in stage.tags and stage.tags.get("arm") != START:
            by_run.setdefault(stage.tags["mlflow.parentRunId"], {})[stage.tags["stage"]] = stage
    marks: set[Mark] = set()
    for job in jobs if by_run else []:
        plans = {plan.name: plan for plan in planned(job)}
        for stages in by_run.values():
            *_, last = stages.values()
            alike = all(name in plans and same_stage(run, plans[name]) for name, run in stages.items())
            if alike and (last.tags.get("arm"), last.tags["seed"]) == (job.arm, str(job.seed)):
                marks.add(_mark(last))
    return marks


def finished_marks(tracker: Tracker, study: Study) -> set[Mark]:
    """The marks, with their fingerprints, of all jobs of the study that have ended well."""
    done = {run.run_id: run for run in study_runs(tracker, study.name)}
    stages = [run for run in tracker.runs([study.name], kind="stage") if run.tags["mlflow.parentRunId"] in done]
    return {
        Mark(run.tags["arm"], run.tags["seed"], run.tags["fingerprint"]) for run in stages if run.status == "FINISHED"
    }


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
            f"{study.name}: {len(others)} runs have finished, none of today's configuration: since then a key, "
            f"data or the policy they begin from has changed; {study.command} runs them anew"
        )
    return runs, others


def lacking_starts(missing: Mapping[int, str]) -> str:
    """Which policies are not there; ``missing``: see :class:`Today`."""
    policies = list(dict.fromkeys(missing.values()))
    more = f" and {len(policies) - MOST_NAMED} more" if len(policies) > MOST_NAMED else ""
    named = f"{', '.join(policies[:MOST_NAMED])}{more}"
    return f"the warm start they began from is not on this machine ({named}), nor does MLflow say what it was"


def still_to_do(jobs: Sequence[ArmJob], done: set[Mark]) -> list[ArmJob]:
    return [job for job in jobs if Mark(job.arm, str(job.seed), planned(job)[-1].fingerprint) not in done]


def _mark(stage: TrackedRun) -> Mark:
    known = stage.tags.get("settings", stage.tags["fingerprint"])  # which earlier versions did not record
    return Mark(stage.tags["arm"], stage.tags["seed"], known)

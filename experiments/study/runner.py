"""What is left of a study, run: the common warm start first, then every job that MLflow has not seen finish."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.carry import sync
from experiments.compare import OUTPUT
from experiments.lock import lock
from experiments.stages import finished as stage_finished
from experiments.study.finished import (
    finished_marks,
    stage_plans,
    start_policy,
    still_to_do,
    todays_marks,
)
from experiments.study.jobs import Job, composed, jobs_of, start_job
from experiments.study.plan import Study, StudyError
from experiments.study.processes import run_jobs
from experiments.study.report import report
from experiments.track import TrackerError, connect

FAILED = 1


def run_study(study: Study, *, parallel: int, only: Sequence[str], seeds: int | None) -> int:
    """Run what is not finished; returns the exit code.

    Raises:
        StudyError: where another process runs this study.
        KeyboardInterrupt: after the jobs were stopped.
    """
    first = start_job(study)
    outputs = Path(composed(first or jobs_of(study, None)[0]).output_dir)
    folder = outputs / "studies" / study.name
    folder.mkdir(parents=True, exist_ok=True)
    with lock(folder / ".lock", wait=False) as alone:
        if not alone:
            raise StudyError(f"{study.name}: another process runs this study ({folder / '.lock'})")
        tell(study.question)
        if first is not None and not _started(first, folder):
            return FAILED
        wanted = _wanted(jobs_of(study, None if first is None else str(start_policy(first))), only, seeds)
        return _run(study, wanted, parallel, outputs, folder)


def _run(study: Study, jobs: Sequence[Job], parallel: int, outputs: Path, folder: Path) -> int:
    runs = outputs / "runs" / study.name
    runs.mkdir(parents=True, exist_ok=True)
    _send(runs)
    left = still_to_do(jobs, finished_marks(connect(), study))
    tell(f"{len(jobs) - len(left)} of {len(jobs)} jobs are finished; {len(left)} to run, {parallel} at a time")
    failed = run_jobs(left, parallel=parallel, logs=folder, tell=tell)
    return close(study, failed, sent=runs if left else None)


def close(study: Study, failed: Mapping[str, Path], *, sent: Path | None) -> int:
    """Send what ``sent`` holds, show the report, and last, whatever came of that, name the jobs that failed."""
    shown = False
    try:
        if sent is not None:
            _send(sent)
        _show(study)
        shown = True
    except TrackerError as error:
        tell(str(error))
    finally:
        for label, log in failed.items():
            tell(f"{label}: FAILED, see {log}")
    return FAILED if failed or not shown else 0


def _show(study: Study) -> None:
    try:
        tracker = connect()
        print("\n".join(report(tracker, study, marks=todays_marks(tracker, study), output=OUTPUT)))
    except StudyError as error:  # the baseline has not finished, say
        tell(str(error))


def _send(runs: Path) -> None:
    """What MLflow missed while a job ran or was killed."""
    if any(runs.rglob("stages.json")) and not sync([runs], connect):
        tell(f"MLflow has not everything yet; to send the rest: python -m experiments.track {runs}")


def _started(first: Job, folder: Path) -> bool:
    """Whether the warm start that all begin from is there, after it has been run if it was not."""
    *_, plan = stage_plans(composed(first))
    return stage_finished(plan) or not run_jobs([first], parallel=1, logs=folder, tell=tell)


def _wanted(jobs: Sequence[Job], only: Sequence[str], seeds: int | None) -> list[Job]:
    return [job for job in jobs if (not only or job.arm in only) and (seeds is None or job.seed < seeds)]


def tell(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {line}", flush=True)

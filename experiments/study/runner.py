"""What is left of a study, run: the warm starts first, then every job that MLflow has not seen finish."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.analysis.study_report import report
from experiments.compare import OUTPUT
from experiments.stages.stage_manifest import finished
from experiments.study.finished import (
    finished_marks,
    still_to_do,
    today,
    todays_jobs,
)
from experiments.study.jobs import Job, composed, start_jobs
from experiments.study.launched import keep
from experiments.study.plan import Study, StudyError
from experiments.study.processes import run_jobs
from experiments.study.starts import start_plan
from experiments.system.devices import gpu_groups
from experiments.system.files import lock
from experiments.track import TrackerError, connect
from experiments.tracking.carry import sync

FAILED = 1


def run_study(study: Study, *, parallel: int, only: Sequence[str], seeds: int | None) -> int:
    """Run what is not finished; returns the exit code.

    Raises:
        StudyError: where another process runs this study.
        KeyboardInterrupt: after the jobs were stopped.
    """
    jobs = _wanted(todays_jobs(study), only, seeds)
    outputs = Path(composed(jobs[0]).output_dir)
    folder = outputs / "studies" / study.name
    folder.mkdir(parents=True, exist_ok=True)
    with lock(folder / ".lock", wait=False) as alone:
        if not alone:
            raise StudyError(f"{study.name}: another process runs this study ({folder / '.lock'})")
        tell(study.question)
        return _run(study, jobs, parallel, outputs, folder)


def _run(study: Study, jobs: Sequence[Job], parallel: int, outputs: Path, folder: Path) -> int:
    keep(tracker := connect(), study)
    runs = outputs / "runs" / study.name
    runs.mkdir(parents=True, exist_ok=True)
    _send(runs)
    seeds = {job.seed for job in jobs}
    starts = {seed: job for seed, job in start_jobs(study).items() if seed in seeds}
    missing = [job for job in dict.fromkeys(starts.values()) if not finished(start_plan(job).folder)]
    gpus = gpu_groups([composed(job).trainer for job in (*starts.values(), *jobs)], parallel)
    no_start = run_jobs(missing, parallel=parallel, logs=folder, tell=tell, gpus=gpus)
    begun = [job for job in jobs if job.seed not in starts or starts[job.seed].label not in no_start]
    left = still_to_do(begun, finished_marks(tracker, study))
    tell(f"{len(begun) - len(left)} of {len(jobs)} jobs are finished; {len(left)} to run, {parallel} at a time")
    failed = run_jobs(left, parallel=parallel, logs=folder, tell=tell, gpus=gpus)
    return close(study, {**no_start, **failed}, sent=runs if left else None)


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
        print("\n".join(report(tracker, study, **today(tracker, study)._asdict(), output=OUTPUT)))
    except StudyError as error:  # the baseline has not finished, say
        tell(str(error))


def _send(runs: Path) -> None:
    """What MLflow missed while a job ran or was killed."""
    if any(runs.rglob("stages.json")) and not sync([runs], connect):
        tell(f"MLflow has not everything yet; to send the rest: python -m experiments.track {runs}")


def _wanted(jobs: Sequence[Job], only: Sequence[str], seeds: int | None) -> list[Job]:
    return [job for job in jobs if (not only or job.arm in only) and (seeds is None or job.seed < seeds)]


def tell(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {line}", flush=True)

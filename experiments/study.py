"""Run the unfinished jobs of a study, then show its report:  make study name=countdown_credit

python -m experiments.study NAME [parallel=1] [only=arm,arm] [first=12] [seeds=2]    fewer jobs at once, some of them
python -m experiments.study NAME [launcher=submitit_slurm]    where its jobs run; default: this machine
python -m experiments.study NAME [progress=json]              how its jobs report progress
python -m experiments.study NAME --config-dir FOLDER          with your own configuration files

Machines share a study by seeds: first=10 seeds=2 on one, first=12 seeds=3 on another. Warm starts run first, then every
job without a finished run in MLflow. Large libraries are imported only after the study has been checked.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from experiments.cli.arguments import split_list
from experiments.cli.commands import COMMANDS
from experiments.config.composition import options
from experiments.config.folders import ConfigDirError, take_config_dir
from experiments.config.hints import did_you_mean
from experiments.jobs import runner
from experiments.jobs.job import LOG, SUCCEEDED, Job
from experiments.jobs.progress import LiveJobs
from experiments.jobs.study_jobs import ArmJob, check, compose_job, start_jobs
from experiments.jobs.study_plan import Study, StudyError, find_study, record_launch
from experiments.mlflow_sync import TrackerError, connect
from experiments.mlflow_sync.sync import sync
from experiments.run_folder.mirror import NOT_SENT, sync_command
from experiments.schema import composing
from experiments.system.files import lock
from experiments.system.launch import FAILED, INTERRUPTED
from experiments.system.terminal import USAGE_ERROR, be_quiet, protect_output


def main(arguments: Sequence[str]) -> int:
    # Needed in the background too: some shells ignore SIGINT there, and our jobs would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        chosen = COMMANDS["study"].read(take_config_dir(arguments))
        study, only = chosen_study(chosen)
        check(study, only)
        return run_study(study, only=only, seeds=chosen_seeds(study, chosen), launcher=chosen.launcher)
    except KeyboardInterrupt:
        return INTERRUPTED
    except (ConfigDirError, StudyError, TrackerError) as error:
        print(error, file=sys.stderr)
        return USAGE_ERROR


def chosen_study(chosen: argparse.Namespace) -> tuple[Study, list[str]]:
    """Returns the study as changed by the options, and the arms to run (empty: all).

    Raises:
        StudyError: if an option does not fit the study.
    """
    study = find_study(chosen.name)
    if chosen.progress is not None:  # changes neither results nor fingerprints
        study = replace(study, common=[*study.common, f"progress={chosen.progress}"])
    only = split_list(chosen.only) if chosen.only else []
    for arm in only:
        if arm not in study.arms:
            raise StudyError(f"only={arm}: no such arm; {did_you_mean(arm, study.arms)}")
    if chosen.launcher is not None:
        with composing():
            known = options("hydra/launcher")
        if chosen.launcher not in known:
            raise StudyError(f"launcher={chosen.launcher}: no such launcher; {did_you_mean(chosen.launcher, known)}")
    parallel = study.parallel if chosen.parallel is None else chosen.parallel
    for name, value in (("parallel", parallel), ("seeds", chosen.seeds)):
        if value is not None and value < 1:
            raise StudyError(f"{name} must be at least 1, got {value}")
    return replace(study, parallel=parallel), only


def chosen_seeds(study: Study, chosen: argparse.Namespace) -> range:
    """Returns the seeds to run.

    Raises:
        StudyError: if ``first`` is not a seed of the study.
    """
    every = range(study.first_seed, study.first_seed + max(arm.seeds for arm in study.arms.values()))
    first = study.first_seed if chosen.first is None else chosen.first
    if first not in every:
        raise StudyError(f"first={first}: no such seed; the study has {every[0]} to {every[-1]}")
    return range(first, every.stop if chosen.seeds is None else first + chosen.seeds)


def run_study(study: Study, *, only: Sequence[str], seeds: range, launcher: str | None = None) -> int:
    """Runs the unfinished jobs of the arms in ``only`` (empty: all) with these seeds; returns the exit code.

    ``launcher``: the Hydra launcher of the jobs; None: this machine.

    Raises:
        StudyError: if another process runs this study.
        TrackerError: if MLflow cannot be used.
    """
    from experiments.analysis.study_rows import power_sentence
    from experiments.jobs.finished import last_stage, still_to_do, todays_jobs
    from experiments.run_folder.record import git_sha
    from experiments.stages.stage_manifest import is_finished

    chosen = [job for job in todays_jobs(study) if not only or job.arm in only]
    jobs = [job for job in chosen if job.seed in seeds]
    if not jobs:
        raise StudyError(f"no chosen arm has a seed from {seeds[0]} to {seeds[-1]}")
    outputs = Path(compose_job(jobs[0]).output_dir)
    folder, runs = outputs / "studies" / study.name, outputs / "runs" / study.name
    folder.mkdir(parents=True, exist_ok=True)
    with lock(folder / ".lock", wait=False) as alone:
        if not alone:
            raise StudyError(f"{study.name}: another process runs this study ({folder / '.lock'})")
        tell(study.question)
        tell(power_sentence(study))
        if git_sha().endswith("-dirty"):
            tell(
                "The working tree has uncommitted changes, and each job runs the code as it is at its start. To "
                "continue editing, run the study at a fixed commit, with its own outputs/, in a second working tree "
                f"(git worktree add ../{study.name} HEAD)"
            )
        record_launch(tracker := connect(), study)
        runs.mkdir(parents=True, exist_ok=True)
        _send(runs)  # first, since MLflow decides which jobs are left
        starts = {seed: job for seed, job in start_jobs(study).items() if seed in {job.seed for job in jobs}}
        missing = [job for job in dict.fromkeys(starts.values()) if not is_finished(last_stage(job).folder)]
        no_start = _run_jobs(missing, folder, study.parallel, launcher)
        startable = [job for job in jobs if job.seed not in starts or starts[job.seed].label not in no_start]
        # not before the warm starts: a job's fingerprint contains the hash of its policy, and its plan is cached
        left = still_to_do(tracker, study, startable)
        finished_jobs = len(startable) - len(left)
        tell(f"{finished_jobs} of {len(jobs)} jobs are finished; {len(left)} to run, {study.parallel} at a time")
        failed = {**no_start, **_run_jobs(left, folder, study.parallel, launcher)}
        return close(study, failed, sent=runs if left else None)


def _run_jobs(arms: Sequence[ArmJob], folder: Path, parallel: int, launcher: str | None) -> Mapping[str, Path]:
    """Runs jobs, ``parallel`` at a time; returns label → log of failed ones. Raises KeyboardInterrupt if stopped."""
    if not arms:
        return {}
    jobs = [
        Job(number=number, name=f"{one.arm}-{one.seed}", overrides=one.overrides) for number, one in enumerate(arms)
    ]
    live = LiveJobs(group=folder, expected=jobs, console=Console(), keys=("arm", "seed"))
    trainers = [compose_job(arm).trainer for arm in arms]
    ended = runner.run_jobs(jobs, trainers=trainers, at_once=parallel, live=live, launcher=launcher)
    if runner.end_of(folder, ended) == "stopped":
        print(f"stopped; {runner.GO_ON}", file=sys.stderr)
        raise KeyboardInterrupt
    return {arms[job.number].label: job.folder(folder) / LOG for job in ended if job.state not in SUCCEEDED}


def close(study: Study, failed: Mapping[str, Path], *, sent: Path | None) -> int:
    """Sends the runs in ``sent`` to MLflow and prints the report. The failed jobs are always printed last."""
    from experiments.analysis.study_report import report_today
    from experiments.compare import OUTPUT

    shown = True
    try:
        if sent is not None:
            _send(sent)
        print("\n".join(report_today(connect(), study, output=OUTPUT)))
    except StudyError as error:  # for example, the baseline has not finished
        tell(str(error))
    except TrackerError as error:
        shown = False
        tell(str(error))
    finally:
        for label, log in failed.items():
            tell(f"{label}: FAILED, see {log}")
    return FAILED if failed or not shown else 0


def _send(runs: Path) -> None:
    """Sends to MLflow what it missed while a job ran or was killed."""
    if any(runs.rglob("stages.json")) and not sync([runs], connect):
        tell(f"{NOT_SENT} {sync_command([runs])}")


def tell(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {line}", flush=True)


if __name__ == "__main__":
    be_quiet()
    protect_output()
    sys.exit(main(sys.argv[1:]))

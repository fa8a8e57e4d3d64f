"""Runs a sweep: a Hydra multirun with progress, summary and exit code, for every launcher.

main ──► watch(run) ────► Hydra ──► on_multirun_start: finished jobs, the live table, Ctrl-C
            │                └────► launcher ──► supervise, once for each job
            └─ the summary, MLflow, and the exit code
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.experimental.callback import Callback
from omegaconf import DictConfig
from rich.console import Console

from experiments.config.composition import compose_lines
from experiments.jobs.job import LOG, PRIMARY, SUCCEEDED, Job, final_metrics, write_job
from experiments.jobs.progress import LiveJobs, label, tally, varying
from experiments.jobs.runner import GO_ON, begin, end_of
from experiments.run_folder.group_state import GroupState, write_state
from experiments.run_folder.mirror import LOG_FILE, missing_from_mlflow, sync_apart
from experiments.run_folder.reader import (
    RESULT,
    SUMMARY,
    SWEEP_COMMAND,
    SWEEP_FILE,
    read_config,
    read_json,
    stage_folders,
)
from experiments.system.files import lock, write_json
from experiments.system.launch import FAILED, INTERRUPTED, is_launched
from experiments.system.terminal import USAGE_ERROR

CALLBACK = "++hydra.callbacks.sweep._target_=experiments.sweep.SweepWatch"
"""Override of a multirun by which Hydra calls ``SweepWatch``. A single run does not import this module."""
DIRECTION, BETTER = "hydra.sweeper.direction", "maximize"
SYNC_START_SECONDS = 40.0
"""Seconds allowed for importing MLflow on a busy machine, in addition to ``logger.patience``."""
_until_exit = ExitStack()
_watched: list[LiveJobs] = []
"""The sweep of this process, if any. It is not kept in the callback, which launchers pickle to other processes."""


def watch(run: Callable[[], Any]) -> None:
    """Calls ``run``. After a sweep it prints the summary and exits: 1 if a job failed, 130 if it was stopped."""
    # Hydra turns exceptions of callbacks into warnings; a sweep without SweepWatch would report success if jobs failed
    warnings.filterwarnings("error", message=r"Callback SweepWatch\.")
    code = None
    try:
        run()
    except (KeyboardInterrupt, SystemExit) as stop:  # Hydra raises SystemExit, for example if its launcher fails
        if not _watched:
            raise
        code = stop.code if isinstance(stop, SystemExit) else INTERRUPTED
    if not _watched:
        return
    try:
        ended = _end(_watched.pop(), code)
    except KeyboardInterrupt:
        print(f"stopped before all of the summary was written; {GO_ON}", file=sys.stderr)
        sys.exit(INTERRUPTED)
    sys.exit(code or ended)


class SweepWatch(Callback):
    """Hydra callback for the start of a multirun."""

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        """Finds finished jobs, divides cores and GPUs among jobs, opens the table and handles Ctrl-C."""
        launcher = config.hydra.launcher
        if (sentence := wrong_direction(config.hydra.sweeper)) is not None:
            _refuse(sentence)
        sweep = Path(config.hydra.sweep.dir)
        # Hydra's own sweeper records the command line too, but Optuna's does not
        write_json(sweep / SWEEP_COMMAND, {"overrides": list(config.hydra.overrides.task)})
        if is_launched():  # by torchrun: the jobs run here, as ranks
            return
        if not _until_exit.enter_context(lock(sweep / ".lock", wait=False)):
            _refuse(f"another sweep runs in {sweep}: give this one a hydra.sweep.dir of its own")
        jobs = expected_jobs(config)
        configs = [compose_lines(*job.overrides) for job in jobs]
        jobs = mark_done(jobs, configs)
        # no live table for a cluster, where jobs take days and their files may be on another machine
        console = Console() if runs_here(launcher) else Console(force_terminal=False)
        _watched.append(LiveJobs(group=sweep, expected=jobs, console=console))
        trainers = [one.trainer for one in configs] or [config.trainer]  # Optuna's jobs are not known yet
        begin(_watched[-1], trainers=trainers, at_once=at_once(launcher, len(jobs)))
        for job in jobs:
            if job.state == "done already":
                write_job(sweep, job)


def _end(live: LiveJobs, code: str | int | None) -> int:
    """Prints, writes and sends to MLflow the outcome of a sweep; ``code``: of its launcher. Returns the exit code."""
    jobs = live.stop()
    print("\n".join(summarise(live.group, jobs)), flush=True)
    end = "stopped" if code == INTERRUPTED else end_of(live.group, jobs)
    if end == "stopped":
        print(f"stopped; {GO_ON}", file=sys.stderr)
    elif code:
        end = "failed"
    write_state(live.group, GroupState(state=end, ended=time.time()))
    for line in send_to_mlflow(live.group, jobs):
        print(line)
    return {"stopped": INTERRUPTED, "failed": FAILED, "done": 0}[end]


def summarise(sweep: Path, jobs: Sequence[Job]) -> list[str]:
    """Prints the table, writes it and its pictures; returns the lines to print after it."""
    from experiments.analysis.sweep import summarise_points

    keys = varying(jobs)
    values = {job.number: {key: job.values[key] for key in keys if key in job.values} for job in jobs}
    metrics = {job.number: final_metrics(job.run_folder(sweep)) for job in jobs if job.state in SUCCEEDED}
    failures = [
        f"job {job.number} ({label(job, keys)}) FAILED: {job.cause}; log {job.folder(sweep) / LOG}"
        for job in jobs
        if job.state == "failed"
    ]
    return [tally(jobs), *summarise_points(sweep, values, metrics, primary=PRIMARY), *failures]


def send_to_mlflow(sweep: Path, jobs: Sequence[Job]) -> list[str]:
    """Sends the state, table and pictures of the sweep to MLflow; returns a message if that failed, else an empty list.

    The jobs' own sync processes have ended by then. The sweep has a run in each experiment of its jobs.
    """
    folders = [folder for job in jobs if (folder := job.run_folder(sweep)) is not None]
    # the run folder of a job that was done already belongs to an earlier sweep
    of_each_experiment = {run.parent: run for run in folders if read_json(run / SWEEP_FILE).get("sweep") == sweep.name}
    loggers = {run: read_config(run).get("logger", {}) for run in of_each_experiment.values()}
    patience = {run: float(logger["patience"]) for run, logger in loggers.items() if logger.get("mirror")}
    log = sweep / LOG_FILE
    if not patience or sync_apart([*patience], log, timeout=SYNC_START_SECONDS + max(patience.values())):
        return []
    return [missing_from_mlflow([*patience], log)]


def _refuse(sentence: str) -> NoReturn:
    print(sentence, file=sys.stderr)
    sys.exit(USAGE_ERROR)


def wrong_direction(sweeper: Any) -> str | None:
    """Returns an error sentence if Optuna's sweeper would minimize, its default; None for a sweeper without direction.

    ``direction`` is a text or a member of an enumeration.
    """
    given = sweeper.get("direction", BETTER)
    if (direction := getattr(given, "name", given)) == BETTER:
        return None
    return f"{DIRECTION}={direction}: jobs return success, which a sweep must maximize: use {DIRECTION}={BETTER}"


def expected_jobs(config: DictConfig) -> list[Job]:
    """Returns all jobs in order; an empty list if the sweeper chooses values during the sweep (Optuna's)."""
    sweeper = config.hydra.sweeper
    if not str(sweeper._target_).endswith(f".{BasicSweeper.__name__}"):
        return []
    given = [f"{key}={value}" for key, value in (sweeper.params or {}).items()]
    loader = GlobalHydra.instance().config_loader()  # needed to expand glob(…)
    parsed = OverridesParser.create(config_loader=loader).parse_overrides([*given, *config.hydra.overrides.task])
    (jobs,) = BasicSweeper.split_arguments(parsed, None)  # without a maximal batch size there is one batch
    return [Job(number=number, overrides=tuple(overrides)) for number, overrides in enumerate(jobs)]


def runs_here(launcher: Any) -> bool:
    """Whether the jobs run as processes of this machine, not on a cluster."""
    return str(launcher._target_).endswith((".BasicLauncher", ".JoblibLauncher"))


def at_once(launcher: Any, jobs: int) -> int:
    """Returns the number of jobs that run at once: joblib's ``n_jobs``, else 1. ``jobs``: all jobs; 0: unknown."""
    if not str(launcher._target_).endswith(".JoblibLauncher"):
        return 1
    from joblib import effective_n_jobs

    return min(effective_n_jobs(launcher.n_jobs), jobs or sys.maxsize)


def mark_done(jobs: Sequence[Job], configs: Sequence[DictConfig]) -> list[Job]:
    """Marks as ``done already`` the jobs with a finished run whose stages have today's fingerprints."""
    parents = [Path(config.output_dir) / "runs" / config.name for config in configs]
    runs = {parent: finished_runs(parent) for parent in set(parents)}
    if not any(runs.values()):
        return list(jobs)  # no run to compare with, so the libraries need not be imported
    from experiments.assemble import AssemblyError
    from experiments.stages.resume import stages_taken

    marked = []
    for job, config, parent in zip(jobs, configs, parents, strict=True):
        try:
            ours = {name: plan.fingerprint for name, plan in stages_taken(config).items()}
        except AssemblyError:  # the job's own process will report the reason
            ours = {}
        same = [folder for folder, theirs in runs[parent].items() if ours and theirs == ours]
        marked.append(replace(job, state="done already", run=str(same[-1])) if same else job)
    return marked


def finished_runs(parent: Path) -> dict[Path, Mapping[str, str]]:
    """Returns folder → {stage: fingerprint} of every ended run whose stage results all exist; newest last."""
    return {
        summary.parent: {stage: str(entry["fingerprint"]) for stage, _, entry in stage_folders(summary.parent)}
        for summary in sorted(parent.glob(f"*/{SUMMARY}"))
        if all((stage / RESULT).is_file() for _, stage, _ in stage_folders(summary.parent))
    }

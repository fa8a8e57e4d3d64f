"""A Hydra multirun, watched from its first job to its summary, whatever launches the jobs.

    main ──► watched(run) ──► Hydra ──► on_multirun_start: jobs done already, the live table, Ctrl-C
                │                └────► launcher ──► supervise, once for each job
                └─ the summary, MLflow, and the exit code

Hydra turns an exception of its callbacks into a warning, which is made an exception again here: without its table a
sweep would end well whatever its jobs did.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from experiments.system.files import lock, write_json
from experiments.system.launch import FAILED, INTERRUPTED, launched

if TYPE_CHECKING:
    from experiments.jobs.job import Job
    from experiments.jobs.progress import LiveJobs

LOCK = ".lock"
USAGE_ERROR = 2
SYNC_START_SECONDS = 40.0
"""What importing MLflow may take on a busy machine, beside what ``logger.patience`` allows."""
_held: list[AbstractContextManager[bool]] = []
_watched: list[LiveJobs] = []
"""The sweep of this process, if it is one. Not of the callback, which launchers send to other processes."""


def watched(run: Callable[[], Any]) -> None:
    """Run; where that was a sweep, show what came of it and exit with 1 if a job failed, 130 if it was stopped."""
    warnings.filterwarnings("error", message=r"Callback SweepWatch\.")
    code = None
    try:
        run()
    except KeyboardInterrupt:
        if not _watched:
            raise
        code = INTERRUPTED
    except SystemExit as stop:  # of Hydra: its launcher failed, say
        if not _watched:
            raise
        code = stop.code
    if _watched:
        ended = _end(_watched.pop(), code)
        sys.exit(code or ended)


class SweepWatch(Callback):
    """What Hydra calls before the jobs of a multirun, and in each job's process."""

    def __init__(self) -> None:
        self._process = os.getpid()

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        """Find what is done already, share out cores and GPUs, open the table and take Ctrl-C."""
        from experiments.run_folder.reader import SWEEP_COMMAND
        from experiments.sweep.plan import at_once, expected_jobs, job_config, mark_done, runs_here, wrong_direction

        launcher = config.hydra.launcher
        if (sentence := wrong_direction(config.hydra.sweeper)) is not None:
            _refuse(sentence)
        sweep = Path(config.hydra.sweep.dir)
        # Hydra's own sweeper writes the command line down as well, Optuna's does not
        write_json(sweep / SWEEP_COMMAND, {"overrides": list(config.hydra.overrides.task)})
        if launched():  # by torchrun: the jobs run here, as ranks
            return
        from rich.console import Console

        from experiments.jobs.job import write_job
        from experiments.jobs.progress import LiveJobs
        from experiments.jobs.runner import begin

        _hold(sweep)
        jobs = expected_jobs(config)
        configs = [job_config(job, config) for job in jobs]
        jobs = mark_done(jobs, configs)
        # a table is for those who watch; a cluster's jobs take days, and their files are far away
        console = Console() if runs_here(launcher) else Console(force_terminal=False)
        _watched.append(LiveJobs(group=sweep, expected=jobs, console=console))
        trainers = [one.trainer for one in configs] or [config.trainer]
        begin(sweep, trainers=trainers, at_once=at_once(launcher, len(jobs)), live=_watched[-1])
        for job in jobs:
            if job.state == "done already":
                write_job(sweep, job)

    def on_job_start(self, config: DictConfig, **_: Any) -> None:
        """In another process than the sweep's leave Ctrl-C to the sweep, which stops all jobs by a file."""
        if os.getpid() != self._process and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, lambda *_: None)  # ignored it would be in the job's process too


def _end(live: LiveJobs, code: str | int | None) -> int:
    """Show, write down and send to MLflow what became of a sweep whose launcher ended with ``code``; its exit code."""
    from experiments.jobs.job import GroupState, write_state
    from experiments.jobs.runner import GO_ON, end_of

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
    """Print the table, write it and its pictures; returns the lines that follow it."""
    from experiments.analysis.sweep import summarise_points
    from experiments.jobs.job import LOG, PRIMARY, SUCCEEDED, final_metrics
    from experiments.jobs.progress import label, tally, varying

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
    """Send the sweep's end, table and pictures to its run in MLflow; returns a line where that did not succeed.

    The jobs' own sync processes have ended. A sweep has a run in each experiment that its jobs belong to.
    """
    from experiments.mlflow_sync.sync import LOG_FILE, missing_from_mlflow, sync_apart
    from experiments.run_folder import read_config

    one_of_each_experiment = {run.parent: run for run in _own_runs(sweep, jobs)}.values()
    loggers = {run: read_config(run).get("logger", {}) for run in one_of_each_experiment}
    patience = {run: float(logger["patience"]) for run, logger in loggers.items() if logger.get("mirror")}
    log = sweep / LOG_FILE
    if not patience or sync_apart([*patience], log, timeout=SYNC_START_SECONDS + max(patience.values())):
        return []
    return [missing_from_mlflow([*patience], log)]


def _own_runs(sweep: Path, jobs: Sequence[Job]) -> Iterator[Path]:
    """The run folders of the jobs that ran as part of this sweep: that of one done already is of an earlier one."""
    from experiments.run_folder import read_json
    from experiments.run_folder.reader import SWEEP_FILE

    for job in jobs:
        folder = job.run_folder(sweep)
        if folder is not None and read_json(folder / SWEEP_FILE).get("sweep") == sweep.name:
            yield folder


def _hold(sweep: Path) -> None:
    """Until this process ends no other sweep works in the folder; exits with a sentence where one does."""
    held = lock(sweep / LOCK, wait=False)
    if not held.__enter__():
        _refuse(f"another sweep runs in {sweep}: give this one a hydra.sweep.dir of its own")
    _held.append(held)


def _refuse(sentence: str) -> NoReturn:
    print(sentence, file=sys.stderr)
    sys.exit(USAGE_ERROR)

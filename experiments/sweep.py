"""A sweep: a Hydra multirun, watched from its first job to its summary, whatever launches the jobs.

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
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, ListConfig, open_dict
from rich.console import Console

from experiments.jobs.job import LOG, PRIMARY, SUCCEEDED, GroupState, Job, final_metrics, write_job, write_state
from experiments.jobs.progress import LiveJobs, label, tally, varying
from experiments.jobs.runner import GO_ON, begin, end_of
from experiments.mlflow_sync.sync import LOG_FILE, missing_from_mlflow, sync_apart
from experiments.run_folder import read_config, read_json, stage_folders
from experiments.run_folder.reader import RESULT, SUMMARY, SWEEP_COMMAND, SWEEP_FILE
from experiments.system.files import lock, write_json
from experiments.system.launch import FAILED, INTERRUPTED, launched

DIRECTION, BETTER = "hydra.sweeper.direction", "maximize"
USAGE_ERROR = 2
SYNC_START_SECONDS = 40.0
"""What importing MLflow may take on a busy machine, beside what ``logger.patience`` allows."""
_until_exit = ExitStack()
_watched: list[LiveJobs] = []
"""The sweep of this process, if it is one. Not of the callback, which launchers send to other processes."""


def watched(run: Callable[[], Any]) -> None:
    """Run; where that was a sweep, show what came of it and exit with 1 if a job failed, 130 if it was stopped."""
    warnings.filterwarnings("error", message=r"Callback SweepWatch\.")
    code = None
    try:
        run()
    except (KeyboardInterrupt, SystemExit) as stop:  # the latter of Hydra: its launcher failed, say
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
    """What Hydra calls before the jobs of a multirun, and in each job's process."""

    def __init__(self) -> None:
        self._process = os.getpid()

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        """Find what is done already, share out cores and GPUs, open the table and take Ctrl-C."""
        launcher = config.hydra.launcher
        if (sentence := wrong_direction(config.hydra.sweeper)) is not None:
            _refuse(sentence)
        sweep = Path(config.hydra.sweep.dir)
        # Hydra's own sweeper writes the command line down as well, Optuna's does not
        write_json(sweep / SWEEP_COMMAND, {"overrides": list(config.hydra.overrides.task)})
        if launched():  # by torchrun: the jobs run here, as ranks
            return
        if not _until_exit.enter_context(lock(sweep / ".lock", wait=False)):
            _refuse(f"another sweep runs in {sweep}: give this one a hydra.sweep.dir of its own")
        jobs = expected_jobs(config)
        configs = [job_config(job, config) for job in jobs]
        jobs = mark_done(jobs, configs)
        # a table is for those who watch; a cluster's jobs take days, and their files are far away
        console = Console() if runs_here(launcher) else Console(force_terminal=False)
        _watched.append(LiveJobs(group=sweep, expected=jobs, console=console))
        trainers = [one.trainer for one in configs] or [config.trainer]
        begin(_watched[-1], trainers=trainers, at_once=at_once(launcher, len(jobs)))
        for job in jobs:
            if job.state == "done already":
                write_job(sweep, job)

    def on_job_start(self, config: DictConfig, **_: Any) -> None:
        """In another process than the sweep's leave Ctrl-C to the sweep, which stops all jobs by a file."""
        if os.getpid() != self._process and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, lambda *_: None)  # ignored it would be in the job's process too


def _end(live: LiveJobs, code: str | int | None) -> int:
    """Show, write down and send to MLflow what became of a sweep whose launcher ended with ``code``; its exit code."""
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
    folders = [folder for job in jobs if (folder := job.run_folder(sweep)) is not None]
    # that of a job done already is of an earlier sweep
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
    """What is wrong with where Optuna's sweeper will look; None where it looks for more, or has no such key.

    Jobs return success, and its own default is to look for less of it. ``direction`` is a word, a member of an
    enumeration, or a list of them.
    """
    given = sweeper.get("direction", BETTER)
    names = [str(getattr(one, "name", one)) for one in (given if isinstance(given, ListConfig) else [given])]
    if names == [BETTER]:
        return None
    shown = names[0] if len(names) == 1 else f"[{','.join(names)}]"
    return f"{DIRECTION}={shown}: jobs return one number, of which more is better (success): say {DIRECTION}={BETTER}"


def expected_jobs(config: DictConfig) -> list[Job]:
    """All jobs in their order; none where the sweeper finds the values as it goes (Optuna's)."""
    sweeper = config.hydra.sweeper
    if not str(sweeper._target_).endswith(f".{BasicSweeper.__name__}"):
        return []
    given = [f"{key}={value}" for key, value in (sweeper.params or {}).items()]
    loader = GlobalHydra.instance().config_loader()  # by which glob(…) knows the choices
    parsed = OverridesParser.create(config_loader=loader).parse_overrides([*given, *config.hydra.overrides.task])
    (jobs,) = BasicSweeper.split_arguments(parsed, None)
    return [Job(number=number, overrides=tuple(overrides)) for number, overrides in enumerate(jobs)]


def runs_here(launcher: Any) -> bool:
    """Whether the jobs are processes of this machine, not of a cluster."""
    return str(launcher._target_).endswith((".BasicLauncher", ".JoblibLauncher"))


def at_once(launcher: Any, jobs: int) -> int:
    """How many of so many jobs (0: unknown) share this machine: joblib's ``n_jobs``, else one."""
    if not str(launcher._target_).endswith(".JoblibLauncher"):
        return 1
    from joblib import effective_n_jobs

    return min(effective_n_jobs(launcher.n_jobs), jobs or sys.maxsize)


def job_config(job: Job, config: DictConfig) -> DictConfig:
    """What a job will be started with, composed as launchers do; ``config``: of the sweep, with Hydra's part."""
    composed = GlobalHydra.instance().config_loader().load_sweep_config(config, list(job.overrides))
    with open_dict(composed):
        del composed["hydra"]
    return composed


def mark_done(jobs: Sequence[Job], configs: Sequence[DictConfig]) -> list[Job]:
    """The jobs, ``done already`` those with a finished run of the fingerprints that their stages would have today."""
    parents = [Path(config.output_dir) / "runs" / config.name for config in configs]
    runs = {parent: finished_runs(parent) for parent in set(parents)}
    if not any(runs.values()):
        return list(jobs)  # nothing to look for: the libraries need not be imported
    from experiments.assemble import AssemblyError
    from experiments.stages.resume import stages_taken

    marked = []
    for job, config, parent in zip(jobs, configs, parents, strict=True):
        try:
            ours = {name: plan.fingerprint for name, plan in stages_taken(config).items()}
        except AssemblyError:  # the job's own process will name the reason
            ours = {}
        same = [folder for folder, theirs in runs[parent].items() if ours and theirs == ours]
        marked.append(replace(job, state="done already", run=str(same[-1])) if same else job)
    return marked


def finished_runs(parent: Path) -> dict[Path, Mapping[str, str]]:
    """Folder → {stage: fingerprint} of every run that has ended and whose stages are all there; the newest last."""
    return {
        summary.parent: {stage: str(entry["fingerprint"]) for stage, _, entry in stage_folders(summary.parent)}
        for summary in sorted(parent.glob(f"*/{SUMMARY}"))
        if all((stage / RESULT).is_file() for _, stage, _ in stage_folders(summary.parent))
    }

"""Runs jobs, each in its own process, so that the others continue if one fails.

    a sweep, or run_jobs with a launcher ──► Hydra's launcher (basic, joblib, submitit, Ray) ──► supervise ─┐
    run_jobs, at_once at a time on this machine ────────────────────────────────────────────────────────────┴► run_job
                                                                         run_job ──► python -m experiments.run …
                                                                            └─ job.json, log.txt; forwards a stop

Under Hydra's launchers, an uncaught error or a kill for lack of memory would end all jobs if they shared a process.
Each job starts with fresh memory, and with the threads and GPUs assigned to it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from hydra._internal.callbacks import Callbacks
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig

from experiments.config.composition import JOB_MODE
from experiments.jobs.job import JOB, LOG, STOP, SUCCEEDED, Job, final_metrics, primary_metric, read_job, write_job
from experiments.jobs.progress import LiveJobs
from experiments.run_folder.group_state import End, GroupState, write_state
from experiments.run_folder.reader import JOB_RUN, JOB_VARIABLE, SWEEP_COMMAND, SWEEP_VARIABLE
from experiments.schema import composing
from experiments.system.devices import GPU_GROUPS, SEPARATOR, THREADS, cores, cores_each, gpu_groups, gpus_of_job
from experiments.system.files import last_line
from experiments.system.launch import INTERRUPTED, SIGNALS

LOOK_SECONDS = 0.3
GRACE_SECONDS = 120.0
"""Time for a stopped job to end its step, write a checkpoint and send the rest to MLflow."""
LONGEST_CAUSE = 300
SUPERVISOR = "CONTRASTIVE_REASONING_SUPERVISOR"
"""Variable with the process that began a group of jobs and stops them. A launcher may run jobs in others."""
KILL = "now"
"""Content of the file ``stop`` that kills the jobs without the grace period."""
GO_ON = "run the same command to continue: finished jobs are kept, stopped ones resume from their checkpoints"


def supervise(hydra: Any) -> float | None:
    """Runs the job that ``hydra`` describes, unless it is done already or a stop was requested.

    Returns the primary metric, for sweepers that optimise it; None if the job failed, was stopped or logged none.
    """
    from experiments.run_folder.record import sweep_of

    here = threading.current_thread() is threading.main_thread()
    if here and os.environ.get(SUPERVISOR) != str(os.getpid()):
        # a launcher's own process gets Ctrl-C, too, but a file stops the jobs; a job would inherit SIG_IGN
        signal.signal(signal.SIGINT, lambda *_: None)
    group, number = Path(hydra.sweep.dir), int(hydra.job.num)
    known = read_job(group / str(number)) or read_job(group / hydra.sweep.subdir)
    job = known or Job(number=number, overrides=tuple(hydra.overrides.task))
    if job.state != "done already":
        sweep = {SWEEP_VARIABLE: json.dumps(sweep_of(hydra))} if (group / SWEEP_COMMAND).exists() else {}
        job = run_job(job, group, variables=sweep)
    found = primary_metric(final_metrics(job.run_folder(group))) if job.state in SUCCEEDED else None
    return None if found is None else found.value


def run_jobs(
    jobs: Sequence[Job], *, trainers: Sequence[Any], at_once: int, live: LiveJobs, launcher: str | None = None
) -> list[Job]:
    """Runs all jobs, started in the given order, and returns them in their final state. Each sets ``arm`` and ``seed``.

    ``launcher``: the Hydra launcher that runs them; None: threads of this process. For the other arguments see
    :func:`begin`.
    """
    handlers = {each: signal.getsignal(each) for each in SIGNALS}
    runs_here = launcher in (None, "joblib")  # others run one job at a time, or on other machines
    begin(live, trainers=trainers, at_once=at_once if runs_here else 1)
    try:
        if launcher is None:
            with ThreadPoolExecutor(at_once) as pool:  # list() raises what a job has raised
                list(pool.map(lambda job: run_job(job, live.group), jobs))
        else:
            _launch(jobs, live.group, launcher, at_once)
    finally:  # also after a second Ctrl-C: release the terminal and write the final state
        for each, handler in handlers.items():
            signal.signal(each, handler)
        ended = live.stop()
        write_state(live.group, GroupState(state=end_of(live.group, ended), ended=time.time()))
    return ended


def _launch(jobs: Sequence[Job], group: Path, launcher: str, at_once: int) -> None:
    """Runs the jobs by one of Hydra's launchers, like the jobs of a multirun."""
    # the subdir has to be the name of the job: supervise reads the job from that folder
    overrides = [f"hydra/launcher={launcher}", f"hydra.sweep.dir={group}", "hydra.sweep.subdir=${arm}-${seed}"]
    overrides += [f"hydra.launcher.n_jobs={at_once}"] if launcher == "joblib" else []
    for job in jobs:
        write_job(group, job)
    with composing():
        loader = GlobalHydra.instance().config_loader()
        config = loader.load_configuration("config", overrides, run_mode=RunMode.MULTIRUN)
        context = HydraContext(config_loader=loader, callbacks=Callbacks(config))
        started = Plugins.instance().instantiate_launcher(
            hydra_context=context, task_function=_supervise_this, config=config
        )
        started.launch([list(job.overrides) for job in jobs], initial_job_idx=0)


def _supervise_this(config: DictConfig) -> float | None:  # a named function, because launchers pickle it by name
    return supervise(HydraConfig.get())


def begin(live: LiveJobs, *, trainers: Sequence[Any], at_once: int) -> None:
    """Prepares a group: deletes the files of earlier jobs, divides cores and GPUs, starts the display, handles Ctrl-C.

    ``trainers``: the config node ``trainer`` of each job; ``at_once``: how many run at a time on this machine.
    """
    group = live.group
    for path in (group / STOP, *group.glob(f"*/{JOB}"), *group.glob(f"*/{JOB_RUN}")):
        path.unlink(missing_ok=True)
    write_state(group, GroupState())
    share = cores_each(at_once)
    if share < cores():
        for name in THREADS:
            os.environ.setdefault(name, str(share))
    os.environ[GPU_GROUPS] = SEPARATOR.join(gpu_groups(trainers, at_once))
    os.environ[SUPERVISOR] = str(os.getpid())
    live.start()
    _take_signals(group / STOP)


def end_of(group: Path, jobs: Sequence[Job]) -> End:
    if (group / STOP).exists():
        return "stopped"
    return "failed" if any(job.state == "failed" for job in jobs) else "done"


def _take_signals(stop: Path) -> None:
    """Installs signal handlers: the first signal requests a stop of all jobs, a second one kills them.

    They write a file, because the jobs are supervised by other threads, or by processes of a launcher.
    """

    def kill(number: int, frame: FrameType | None) -> None:
        stop.write_text(KILL, encoding="utf-8")
        for each in SIGNALS:
            signal.signal(each, signal.default_int_handler)
        raise KeyboardInterrupt

    def ask(number: int, frame: FrameType | None) -> None:
        stop.parent.mkdir(parents=True, exist_ok=True)
        stop.touch()
        for each in SIGNALS:
            signal.signal(each, kill)
        print(f"\n{SIGNALS[signal.Signals(number)]}: stopping the jobs; once more to end them now", flush=True)

    for each in SIGNALS:
        signal.signal(each, ask)


def run_job(job: Job, group: Path, *, variables: Mapping[str, str] | None = None) -> Job:
    """Runs one job and returns it in its final state.

    It gets the first free GPUs of its group, and ``variables`` in its environment.
    """
    folder, stop = job.folder(group), group / STOP
    if stop.exists():
        job = replace(job, state="stopped")
    else:
        with gpus_of_job(group) as gpus:
            write_job(group, job := replace(job, state="running", began=time.time()))
            own = {JOB_VARIABLE: str(folder), "HYDRA_FULL_ERROR": "1", "PYTHONUNBUFFERED": "1"}
            with (folder / LOG).open("ab") as log:
                process = subprocess.Popen(
                    _command(job),
                    env={**os.environ, **own, **(variables or {}), **gpus},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # Ctrl-C reaches it only once, through _wait
                )
            code = _wait(process, stop)
        job = replace(job, ended=time.time(), **_outcome(code, folder / LOG, stopped=stop.exists()))
    write_job(group, job)
    return job


def _command(job: Job) -> list[str]:
    # JOB_MODE forces a single run: a preset of conf/sweep among the overrides would start the sweep again
    return [sys.executable, "-m", "experiments.run", *job.overrides, JOB_MODE]


def _wait(process: subprocess.Popen[bytes], stop: Path) -> int:
    """Waits for a process and returns its exit code. After a stop request, interrupts it; later kills it if needed."""
    deadline = None
    try:
        while process.poll() is None:
            if deadline is None and stop.exists():
                process.send_signal(signal.SIGINT)
                deadline = time.monotonic() + GRACE_SECONDS
            if deadline is not None and (time.monotonic() > deadline or stop.read_text(encoding="utf-8") == KILL):
                process.kill()
            time.sleep(LOOK_SECONDS)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    return process.returncode


def _outcome(code: int, log: Path, *, stopped: bool) -> dict[str, Any]:
    """The state of a finished process. Any nonzero exit code of a process that was interrupted means "stopped"."""
    if code == 0:
        return {"state": "done"}
    if stopped or code == INTERRUPTED:
        return {"state": "stopped"}
    cause = f"killed by {signal.Signals(-code).name}" if code < 0 else last_line(log, default="it printed nothing")
    return {"state": "failed", "cause": cause if len(cause) <= LONGEST_CAUSE else cause[: LONGEST_CAUSE - 1] + "…"}

"""Run jobs, each as a process of its own: whatever becomes of one, the others go on.

    a sweep, or run_jobs with a launcher ──► Hydra's launcher (basic, joblib, submitit, Ray) ──► supervise ─┐
    run_jobs, so many at a time on this machine ────────────────────────────────────────────────────────────┴► run_job
                                                                         run_job ──► python -m experiments.run …
                                                                            └─ job.json, log.txt; passes a stop on

A process of its own, because an error that left ``run`` would end all jobs under Hydra's launchers, and so would one
that is killed for want of memory. Each job begins with fresh memory, and the threads and GPUs that it is given.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from hydra import initialize_config_module
from hydra._internal.callbacks import Callbacks
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig

from experiments.config.composition import JOB_MODE
from experiments.jobs.job import (
    JOB,
    LOG,
    STOP,
    SUCCEEDED,
    End,
    GroupState,
    Job,
    final_metrics,
    primary_metric,
    read_job,
    write_job,
    write_state,
)
from experiments.jobs.progress import LiveJobs
from experiments.run_folder.reader import JOB_RUN, JOB_VARIABLE, SWEEP_COMMAND, SWEEP_VARIABLE
from experiments.system.devices import GPU_GROUPS, SEPARATOR, THREADS, cores, cores_each, gpu_groups, gpus_of_job
from experiments.system.launch import INTERRUPTED

LOOK_SECONDS = 0.3
GRACE_SECONDS = 120.0
"""What a stopped job may take to end its step, write a checkpoint and send the rest to MLflow."""
LONGEST_CAUSE = 300
SIGNALS = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}
KILL = "now"
"""In the file ``stop``: the jobs are not waited for."""
GO_ON = "the same command goes on: what is finished is not run again, what was stopped continues from its checkpoint"


def supervise(hydra: Any) -> float | None:
    """Run the job that ``hydra`` describes, unless it is done already or all are to stop.

    Returns the primary metric, for a sweeper that learns from it; None where the job failed or was stopped.
    """
    from experiments.run_folder.record import sweep_of

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
    """Run all jobs, each of which sets ``arm`` and ``seed``, begun in their order; as they ended.

    ``launcher``: one of Hydra's, which runs them; None: threads of this process start them. The rest: :func:`begin`.
    """
    handlers = {each: signal.getsignal(each) for each in SIGNALS}
    begin(live, trainers=trainers, at_once=at_once)
    ended: list[Job] = []
    try:
        if launcher is None:
            with ThreadPoolExecutor(at_once) as pool:
                list(pool.map(lambda job: run_job(job, live.group), jobs))
        else:
            _launch(jobs, live.group, launcher, at_once)
    finally:  # after a second Ctrl-C, too: the terminal is given back, and the state on disk is the last one
        for each, handler in handlers.items():
            signal.signal(each, handler)
        ended = live.stop()
        write_state(live.group, GroupState(state=end_of(live.group, ended), ended=time.time()))
    return ended


def _launch(jobs: Sequence[Job], group: Path, launcher: str, at_once: int) -> None:
    """Have one of Hydra's launchers run the jobs, as those of a multirun."""
    overrides = [f"hydra/launcher={launcher}", f"hydra.sweep.dir={group}", "hydra.sweep.subdir=${arm}-${seed}"]
    overrides += [f"hydra.launcher.n_jobs={at_once}"] if launcher == "joblib" else []
    for job in jobs:
        write_job(group, job)
    with initialize_config_module("conf", version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()
        config = loader.load_configuration("config", overrides, run_mode=RunMode.MULTIRUN)
        context = HydraContext(config_loader=loader, callbacks=Callbacks(config))
        plugins = Plugins.instance()
        started = plugins.instantiate_launcher(hydra_context=context, task_function=_supervise_this, config=config)
        started.launch([list(job.overrides) for job in jobs], initial_job_idx=0)


def _supervise_this(config: DictConfig) -> float | None:  # by name, as launchers send it to other processes
    return supervise(HydraConfig.get())


def begin(live: LiveJobs, *, trainers: Sequence[Any], at_once: int) -> None:
    """From now on the jobs run: clear what earlier ones left, share out cores and GPUs, show them, take Ctrl-C.

    ``trainers``: the node ``trainer`` of each; ``at_once``: how many run at a time on this machine.
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
    live.start()
    _take_signals(group / STOP)


def end_of(group: Path, jobs: Sequence[Job]) -> End:
    """How a group of jobs ended."""
    if (group / STOP).exists():
        return "stopped"
    return "failed" if any(job.state == "failed" for job in jobs) else "done"


def _take_signals(stop: Path) -> None:
    """The first one asks all jobs to stop, a second one kills them."""

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
    """Run one job, with the first free GPUs of its group and ``variables`` in its environment; as it ended."""
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
                    start_new_session=True,  # Ctrl-C reaches it once, from here
                )
            code = _wait(process, stop)
        job = replace(job, ended=time.time(), **_outcome(code, folder / LOG, stopped=stop.exists()))
    write_job(group, job)
    return job


def _command(job: Job) -> list[str]:
    # a single run, or a preset of conf/sweep among the overrides would start the sweep again
    return [sys.executable, "-m", "experiments.run", *job.overrides, JOB_MODE]


def _wait(process: subprocess.Popen[bytes], stop: Path) -> int:
    """Wait for its end; when the group is to stop, interrupt it, and kill it where it takes too long. Its exit code."""
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
    """What became of a process. How one ends that was asked to stop depends on where it was, and means nothing."""
    if code == 0:
        return {"state": "done"}
    if stopped or code == INTERRUPTED:
        return {"state": "stopped"}
    return {"state": "failed", "cause": f"killed by {signal.Signals(-code).name}" if code < 0 else _last_line(log)}


def _last_line(log: Path) -> str:
    """The last line that is not blank, where a refusal stands or what a traceback ends with."""
    with log.open(encoding="utf-8", errors="replace") as file:
        last = "".join(deque(filter(str.strip, file), maxlen=1)).strip() or "it printed nothing"
    return last if len(last) <= LONGEST_CAUSE else last[: LONGEST_CAUSE - 1] + "…"

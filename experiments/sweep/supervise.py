"""One job of a sweep, as a process of its own: whatever becomes of it, its sweep learns it and goes on.

    launcher (basic, joblib, submitit, Ray) ──► supervise ──► python -m experiments.run … hydra.mode=RUN
                                                   └─ job.json, log.txt; passes a stop on

An error that left ``run`` would end the whole sweep under Hydra's launchers, and so would a process that is killed for
want of memory. Each job begins with fresh memory, and the threads and GPUs that it is given.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.run_folder.record import SWEEP_VARIABLE, sweep_of
from experiments.sweep.job import FOLDER, LOG, STOP, Job, read_job, run_folder, write_job
from experiments.sweep.metric import primary
from experiments.system.devices import gpus_of_job
from experiments.system.launch import INTERRUPTED

LOOK_SECONDS = 0.3
GRACE_SECONDS = 120.0
"""What a stopped job may take to end its step, write a checkpoint and send the rest to MLflow."""
LONGEST_CAUSE = 300
"""Letters of a cause that are told."""
TAIL = 8192
"""Bytes of a log in which its last line is looked for."""


def supervise(hydra: Any) -> float | None:
    """Run the job that ``hydra`` describes, unless it is done already or the sweep is to stop.

    Returns:
        The primary metric, for a sweeper that learns from it; None where the job failed or was stopped.
    """
    sweep, number = Path(hydra.sweep.dir), int(hydra.job.num)
    folder = sweep / str(number)
    job = read_job(folder) or Job(number=number, overrides=tuple(hydra.overrides.task))
    if job.state != "done already":
        with gpus_of_job(sweep) as gpus:
            job = _run(job, folder, sweep / STOP, {SWEEP_VARIABLE: json.dumps(sweep_of(hydra)), **gpus})
    found = primary(run_folder(folder, job)) if job.state in ("done", "done already") else None
    return None if found is None else found.value


def _run(job: Job, folder: Path, stop: Path, variables: Mapping[str, str]) -> Job:
    if stop.exists():
        write_job(folder, job := replace(job, state="stopped"))
        return job
    write_job(folder, job := replace(job, state="running", began=time.time()))
    code = _code_of(_started(job, folder, variables), stop)
    outcome = _outcome(code, folder / LOG, asked=stop.exists())
    write_job(folder, job := replace(job, ended=time.time(), **outcome))
    return job


def _started(job: Job, folder: Path, variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
    # RUN, or a preset of conf/sweep among the overrides would start the sweep again
    command = [sys.executable, "-m", "experiments.run", *job.overrides, "hydra.mode=RUN"]
    own = {FOLDER: str(folder), "HYDRA_FULL_ERROR": "1", "PYTHONUNBUFFERED": "1"}
    with (folder / LOG).open("ab") as log:
        return subprocess.Popen(
            command,
            env={**os.environ, **own, **variables},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches it once, from here
        )


def _code_of(process: subprocess.Popen[bytes], stop: Path) -> int:
    """Wait for its end; when the sweep is to stop, interrupt it, and kill it where it takes too long."""
    deadline = None
    try:
        while process.poll() is None:
            if deadline is None and stop.exists():
                process.send_signal(signal.SIGINT)
                deadline = time.monotonic() + GRACE_SECONDS
            if deadline is not None and time.monotonic() > deadline:
                process.kill()
            time.sleep(LOOK_SECONDS)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    return process.returncode


def _outcome(code: int, log: Path, *, asked: bool) -> dict[str, Any]:
    """What became of a process; how one ends that was asked to stop depends on where it was, and means nothing."""
    if code == 0:
        return {"state": "done"}
    if asked or code == INTERRUPTED:
        return {"state": "stopped"}
    return {"state": "failed", "cause": f"killed by {signal.Signals(-code).name}" if code < 0 else last_line(log)}


def last_line(log: Path) -> str:
    """The last line that is not blank, where a refusal stands or what a traceback ends with."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - TAIL))
        lines = file.read().decode("utf-8", errors="replace").splitlines()
    said = next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
    return said if len(said) <= LONGEST_CAUSE else said[: LONGEST_CAUSE - 1] + "…"

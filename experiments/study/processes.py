"""Jobs as processes, a few at a time, each with a log of its own; one that fails does not take the others along.

Were we killed outright, running jobs would go on to their end; the next start then waits where they hold a stage's
lock, and uses what they leave.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from experiments.study.jobs import Job
from experiments.system.devices import THREADS, VISIBLE, cores_each

LOOK_SECONDS = 0.2
GRACE_SECONDS = 120.0
"""What a stopped job may take to close its files and send the rest to MLflow."""

Tell = Callable[[str], None]


def run_jobs(
    jobs: Iterable[Job], *, parallel: int, logs: Path, tell: Tell, gpus: Sequence[str] = ()
) -> Mapping[str, Path]:
    """Run all jobs, ``parallel`` at a time; returns label → log of those that failed.

    Args:
        jobs: in the order in which they begin.
        parallel: how many run at a time.
        logs: the folder of their logs.
        tell: what is told of them.
        gpus: for each that runs at a time those that it may see (``experiments/system/gpus.py``); empty: all of them.

    Raises:
        KeyboardInterrupt: after all running jobs were asked to stop and have ended.
    """
    waiting, running, failed = list(jobs), dict[Job, Running](), dict[str, Path]()
    total, threads, free = len(waiting), cores_each(parallel), list(gpus)
    try:
        while waiting or running:
            while waiting and len(running) < parallel:
                job = waiting.pop(0)
                running[job] = Running(job, logs, threads, free.pop(0) if free else None)
                tell(f"{job.label}: started, {total - len(waiting)} of {total}; log {running[job].log}")
            for job in [job for job, process in running.items() if process.ended]:
                process = running.pop(job)
                free += [process.gpus] if process.gpus is not None else []
                if process.code != 0:
                    failed[job.label] = process.log
                tell(f"{job.label}: {process.outcome}")
            time.sleep(LOOK_SECONDS)
    except KeyboardInterrupt:
        tell(f"stopping {len(running)} job(s); the same command goes on from their checkpoints")
        stop(running.values())
        raise
    return failed


class Running:
    """A job's process. It has a session of its own, so that Ctrl-C reaches it once: from us."""

    def __init__(self, job: Job, logs: Path, threads: int, gpus: str | None) -> None:
        logs.mkdir(parents=True, exist_ok=True)
        self.log = logs / f"{job.arm}-{job.seed}.log"
        self.gpus = gpus
        self._began = time.monotonic()
        own = {"PYTHONUNBUFFERED": "1"} | ({} if gpus is None else {VISIBLE: gpus})
        environment = {**dict.fromkeys(THREADS, str(threads)), **os.environ, **own}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                job.command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    @property
    def code(self) -> int | None:
        return self.process.returncode

    @property
    def outcome(self) -> str:
        """What is said at the end."""
        minutes = (time.monotonic() - self._began) / 60
        return f"done in {minutes:.1f} min" if self.code == 0 else f"FAILED with exit code {self.code}, see {self.log}"


def stop(running: Iterable[Running]) -> None:
    """Interrupt, as Ctrl-C would, and wait; who does not end in time, or on a second Ctrl-C, is killed."""
    left = [each.process for each in running if not each.ended]
    for process in left:
        process.send_signal(signal.SIGINT)
    deadline = time.monotonic() + GRACE_SECONDS
    try:
        for process in left:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
    finally:
        for process in left:
            if process.poll() is None:
                process.kill()
                process.wait()

"""A Hydra multirun, watched from its first job to its summary, whatever launches the jobs.

    main ──► watched(run) ──► Hydra ──► on_multirun_start: jobs done already, the live table, Ctrl-C
                │                └────► launcher ──► supervise, once for each job
                └─ the summary, and the exit code

Hydra turns an exception of its callbacks into a warning, which is made an exception again here: without its table a
sweep would end well whatever its jobs did.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from experiments.sweep.direction import wrong_direction
from experiments.sweep.job import STOP, TYPED, write_job
from experiments.system.devices import GPU_GROUPS, SEPARATOR, THREADS, cores_each, gpu_groups
from experiments.system.files import lock, write_json
from experiments.system.launch import FAILED, INTERRUPTED, launched

if TYPE_CHECKING:
    from experiments.sweep.live import LiveJobs

SIGNALS = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}
GO_ON = "the same command goes on: what is finished is not run again, what was stopped continues from its checkpoint"
LOCK = ".lock"
USAGE_ERROR = 2
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


def _end(live: LiveJobs, code: str | int | None) -> int:
    """Show and write down what became of a sweep whose launcher ended with ``code``; returns the exit code."""
    from experiments.sweep.close import close_sweep
    from experiments.sweep.summary import summarise

    jobs = live.stop()
    print("\n".join(summarise(live.sweep, jobs)), flush=True)
    stopped = (live.sweep / STOP).exists() or code == INTERRUPTED
    failed = bool(code) or any(job.state == "failed" for job in jobs)
    if stopped:
        print(f"stopped; {GO_ON}", file=sys.stderr)
    for line in close_sweep(live.sweep, "stopped" if stopped else "failed" if failed else "done", jobs):
        print(line)
    return INTERRUPTED if stopped else FAILED if failed else 0


class SweepWatch(Callback):
    """What Hydra calls before the jobs of a multirun, and in each job's process."""

    def __init__(self) -> None:
        self._process = os.getpid()

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        """Find what is done already, share cores and GPUs out, open the table and take Ctrl-C."""
        if (sentence := wrong_direction(config.hydra.sweeper)) is not None:
            _refuse(sentence)
        sweep = Path(config.hydra.sweep.dir)
        # Hydra's own sweeper writes the command line down as well, Optuna's does not
        write_json(sweep / TYPED, {"overrides": list(config.hydra.overrides.task)})
        if launched():  # by torchrun: the jobs run here, as ranks
            return
        from rich.console import Console

        _hold(sweep)
        from experiments.sweep.close import open_sweep
        from experiments.sweep.done import job_config, mark_done
        from experiments.sweep.expected import at_once, expected_jobs, runs_here
        from experiments.sweep.live import LiveJobs

        open_sweep(sweep)
        jobs = expected_jobs(config)
        configs = [job_config(job, config) for job in jobs]
        trainers = [one.trainer for one in configs] or [config.trainer]
        _share_out(trainers, at_once(config.hydra.launcher, len(jobs)))
        for job in (jobs := mark_done(jobs, configs)):
            if job.state == "done already":
                write_job(sweep / str(job.number), job)
        # a table is for those who watch; a cluster's jobs take days, and their files are far away
        console = Console() if runs_here(config.hydra.launcher) else Console(force_terminal=False)
        live = LiveJobs(sweep=sweep, expected=jobs, console=console)
        _watched.append(live)
        live.start()
        _take_signals(sweep / STOP)

    def on_job_start(self, config: DictConfig, **_: Any) -> None:
        """In another process than the sweep's leave Ctrl-C to the sweep, which tells all jobs by a file."""
        if os.getpid() != self._process and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, lambda *_: None)  # ignored it would be in the job's process too


def _share_out(trainers: Sequence[Any], jobs_at_once: int) -> None:
    """Leave the jobs, which have these trainers, in variables which cores and GPUs of this machine each may have."""
    share = cores_each(jobs_at_once)
    if share < (os.cpu_count() or 1):
        for name in THREADS:
            os.environ.setdefault(name, str(share))
    os.environ[GPU_GROUPS] = SEPARATOR.join(gpu_groups(trainers, jobs_at_once))


def _hold(sweep: Path) -> None:
    """Until this process ends no other sweep works in the folder; exits with a sentence where one does."""
    held = lock(sweep / LOCK, wait=False)
    if not held.__enter__():
        _refuse(f"another sweep runs in {sweep}: give this one a hydra.sweep.dir of its own")
    _held.append(held)


def _refuse(sentence: str) -> NoReturn:
    print(sentence, file=sys.stderr)
    sys.exit(USAGE_ERROR)


def _take_signals(stop: Path) -> None:
    """The first one asks all jobs to stop, a second one ends them at once."""
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def ask(number: int, frame: FrameType | None) -> None:
        stop.parent.mkdir(parents=True, exist_ok=True)
        stop.touch()
        for each in SIGNALS:
            signal.signal(each, signal.default_int_handler)
        print(f"\n{SIGNALS[signal.Signals(number)]}: stopping the sweep; once more to end its jobs now", flush=True)

    with suppress(ValueError):  # outside the main thread nobody can
        for number in before:
            signal.signal(number, ask)

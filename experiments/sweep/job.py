"""A job of a sweep as its folder tells it: written by who runs the job, read by who watches the sweep.

outputs/sweeps/<time>/
    typed.json          {"overrides": […]}, the command line
    stop                there once somebody has asked the sweep to stop
    state.json          how far it is, see experiments/sweep/state.py
    <number>/job.json   a Job
    <number>/run.json   {"folder": …}, the run folder that the job opened
    <number>/log.txt    what it said
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, get_args

from experiments.run_folder import read_json
from experiments.system.files import write_json

State = Literal["waiting", "running", "done", "done already", "failed", "stopped"]
STATES: tuple[State, ...] = get_args(State)
JOB, RUN, LOG, STOP, TYPED = "job.json", "run.json", "log.txt", "stop", "typed.json"
FOLDER = "CONTRASTIVE_REASONING_JOB"
"""The variable by which a job's process knows where to leave ``run.json``."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One point of the sweep."""

    number: int
    overrides: Sequence[str]
    """All of its command line, swept or not."""
    state: State = "waiting"
    began: float | None = None
    """Seconds since the epoch."""
    ended: float | None = None
    cause: str | None = None
    """Why it failed, in a line."""
    run: str | None = None
    """Of a job that was done already: the run folder that has its result."""

    @property
    def values(self) -> dict[str, str]:
        """Key → value of every override, without Hydra's escapes."""
        pairs = (override.partition("=") for override in self.overrides)
        return {key: re.sub(r"\\(.)", r"\1", value) for key, _, value in pairs}


def read_job(folder: Path) -> Job | None:
    """The job of a folder; None where it has not begun."""
    content = read_json(folder / JOB)
    return Job(**content) if content else None


def write_job(folder: Path, job: Job) -> None:
    write_json(folder / JOB, asdict(job))


def run_folder(folder: Path, job: Job) -> Path | None:
    """Where the job's numbers are; None where it has not come so far."""
    named = job.run or read_json(folder / RUN).get("folder")
    return Path(named) if named else None

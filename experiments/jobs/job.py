"""A job and its group, stored as files. The process that runs a job writes them, a process that monitors it reads them.

outputs/sweeps/<time>/, outputs/studies/<name>/
    state.json        a GroupState: of the process that runs the group
    stop              exists once a stop of the jobs was requested; contains "now" once they are to be killed
    <job>/job.json    a Job
    <job>/run.json    {"folder": …}, the run folder that the job opened
    <job>/log.txt     its output
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from experiments.run_folder.reader import JOB_RUN, SUMMARY, read_json
from experiments.system.files import write_json

State = Literal["waiting", "running", "done", "done already", "failed", "stopped"]
STATES: tuple[State, ...] = get_args(State)
SUCCEEDED = ("done", "done already")
JOB, LOG, STOP = "job.json", "log.txt", "stop"
PRIMARY = (
    "test/verifier/accuracy_sampled",
    "test/verifier/accuracy",
    "val/verifier/accuracy_sampled",
    "val/verifier/accuracy",
    "val/oracle/auroc_depth1",
)
"""Jobs are ordered by the first of these metrics that exists. All are fractions, higher is better. Sampled accuracy has
the least variance; a critic alone has only the last one."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One process: ``python -m experiments.run`` with these overrides."""

    number: int
    overrides: Sequence[str]
    """All overrides of its command line, swept or not."""
    name: str = ""
    """Name of its folder within the group; empty: its number."""
    state: State = "waiting"
    began: float | None = None
    """Seconds since the epoch."""
    ended: float | None = None
    cause: str | None = None
    """Why it failed, in one line."""
    run: str | None = None
    """For a job that was done already: the run folder that has its result."""

    @property
    def values(self) -> dict[str, str]:
        """Key → value of every override, without Hydra's escapes."""
        pairs = (override.partition("=") for override in self.overrides)
        return {key: re.sub(r"\\(.)", r"\1", value) for key, _, value in pairs}

    def folder(self, group: Path) -> Path:
        return group / (self.name or str(self.number))

    def run_folder(self, group: Path) -> Path | None:
        """The run folder with the job's metrics; None before its run has created one."""
        folder = self.run or read_json(self.folder(group) / JOB_RUN).get("folder")
        return Path(folder) if folder else None


def read_job(folder: Path) -> Job | None:
    """The job of a folder; None if the folder has no ``job.json``."""
    content = read_json(folder / JOB)
    return Job(**content) if content else None


def write_job(group: Path, job: Job) -> None:
    write_json(job.folder(group) / JOB, asdict(job))


class Found(NamedTuple):
    """A metric and its value."""

    name: str
    value: float

    def __str__(self) -> str:
        """``0.412 test accuracy_sampled``."""
        return f"{self.value:.3f} {self.name.partition('/')[0]} {self.name.rpartition('/')[2]}"


def primary_metric(metrics: Mapping[str, float]) -> Found | None:
    return next((Found(name, metrics[name]) for name in PRIMARY if name in metrics), None)


def final_metrics(run: Path | None) -> dict[str, float]:
    """All metrics of a finished run, at their last step; empty before its end."""
    stages = {} if run is None else read_json(run / SUMMARY).get("metrics", {})
    return {name: value for metrics in stages.values() for name, value in metrics.items()}

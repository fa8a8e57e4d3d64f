"""Live display of jobs: a table on a terminal, otherwise one line for each change of state.

It reads the jobs' files, so a job may run in any process and on any machine.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from experiments.jobs.job import JOB, LOG, STATES, Found, Job, primary_metric, read_job
from experiments.run_folder.reader import complete_lines, read_config, stage_folders

LOOK_SECONDS = 1.0
STYLES = {"running": "bold", "failed": "red", "stopped": "", "waiting": "dim", "done": "green", "done already": "green"}
"""Style of each state, in the order of the table's rows; a short terminal cuts off the last rows."""


class RunProgress:
    """Progress of a run, read from its folder; each ``look`` reads only what was written since the last one."""

    def __init__(self, run: Path) -> None:
        self._run = run
        config = read_config(run)
        self._budget: Mapping[str, Any] = config.get("budget") or {}
        reward = config["reward"] if isinstance(config.get("reward"), dict) else {}
        # a fixed head has no warm-up
        self._warmup = reward.get("warmup_steps") or 0 if reward.get("trainable", True) else 0
        self._read: dict[Path, int] = {}
        self._metrics: dict[str, float] = {}
        self._step = 0
        self._stage = "starting"

    def look(self) -> None:
        for stage, folder, _ in stage_folders(self._run):
            if stage != self._stage and folder not in self._read:
                self._stage, self._step = stage, 0
            for metric, end in complete_lines(folder, start=self._read.setdefault(folder, 0)):
                self._read[folder] = end
                self._metrics[metric.name] = metric.value
                self._step = max(self._step, metric.step)

    @property
    def place(self) -> str:
        """Stage and step, as in ``grpo 12/60``; only the stage's name if it has no steps."""
        steps = (self._budget.get(self._stage) or {}).get("steps")
        if not steps:
            return self._stage
        # the logged step counts rollout batches, including those before the policy's first update
        return f"{self._stage} {self._step}/{steps + self._warmup * (self._stage == 'grpo')}"

    @property
    def metric(self) -> Found | None:
        """The last value of the primary metric."""
        return primary_metric(self._metrics)


class LiveJobs:
    """Shows the jobs of a group and updates the display once a second, in its own thread.

    Args:
        group: the folder of the group.
        expected: the jobs that are known beforehand.
        console: where to show them.
        keys: the overrides whose values label a job; None: those that differ between jobs.
    """

    def __init__(
        self, *, group: Path, expected: Sequence[Job], console: Console, keys: Sequence[str] | None = None
    ) -> None:
        self.group = group
        self._expected = {job.number: job for job in expected}
        self._keys = keys
        self._console = console
        self._runs: dict[int, RunProgress] = {}
        self._printed: dict[int, str] = {}
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        if self._live is not None:
            self._live.start()
        self._thread.start()

    def stop(self) -> list[Job]:
        """Shows the final state, releases the terminal and returns the jobs in their final state."""
        self._over.set()
        if self._thread.ident is not None:  # None: stop was called before start
            self._thread.join()
        lost = {"state": "failed", "cause": "its process ended without a message"}
        jobs = [replace(job, **lost) if job.state == "running" else job for job in self._jobs()]
        self._show(jobs)
        if self._live is not None:
            self._live.stop()
        return jobs

    def _watch(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            self._show(self._jobs())

    def _jobs(self) -> list[Job]:
        found = (read_job(path.parent) for path in self.group.glob(f"*/{JOB}"))
        started = {job.number: job for job in found if job is not None}
        return [job for _, job in sorted((self._expected | started).items())]

    def _show(self, jobs: Sequence[Job]) -> None:
        keys = varying(jobs) if self._keys is None else self._keys
        for job in jobs:
            if job.state != "waiting" and (folder := job.run_folder(self.group)) is not None:
                self._runs.setdefault(job.number, RunProgress(folder)).look()
        if self._live is not None:
            self._live.update(as_table(jobs, self._runs, keys, title=self.group.name), refresh=True)
            return
        for job in jobs:
            if job.state not in (self._printed.get(job.number), "waiting"):
                self._printed[job.number] = job.state
                line = as_line(job, self._runs.get(job.number), keys, log=job.folder(self.group) / LOG)
                text = f"{time.strftime('%H:%M:%S')}  {line}"
                self._console.print(text, soft_wrap=True, markup=False, highlight=False)


def varying(jobs: Sequence[Job]) -> list[str]:
    """The keys whose value is not the same in all jobs, in the order of the command line."""
    keys = dict.fromkeys(key for job in jobs for key in job.values)
    return [key for key in keys if len({job.values.get(key) for job in jobs}) > 1]


def label(job: Job, keys: Sequence[str]) -> str:
    """``reward.temperature=0.2 seed=1``."""
    return " ".join(f"{key}={job.values[key]}" for key in keys if key in job.values)


def tally(jobs: Sequence[Job]) -> str:
    """``8 jobs: 5 waiting, 1 running, 2 done``."""
    counts = Counter(job.state for job in jobs)
    parts = [f"{counts[state]} {state}" for state in STATES if counts[state]]
    return f"{len(jobs)} job{'' if len(jobs) == 1 else 's'}: {', '.join(parts)}"


def as_table(jobs: Sequence[Job], runs: Mapping[int, RunProgress], keys: Sequence[str], *, title: str) -> Table:
    """Running and failed jobs come first."""
    table = Table(title=f"{title}: {tally(jobs)}", box=box.SIMPLE_HEAD, title_justify="left")
    for name in ("#", "job", "state", "metric", "minutes"):
        table.add_column(name, justify="right" if name in ("#", "minutes") else "left", overflow="fold")
    for job in sorted(jobs, key=lambda job: [*STYLES].index(job.state)):
        run = runs.get(job.number)
        state = f"running {run.place if run else 'starting'}" if job.state == "running" else job.state
        cells = (str(job.number), label(job, keys), state, str((run and run.metric) or ""), _minutes(job))
        table.add_row(*map(Text, cells), style=STYLES[job.state])
    return table


def as_line(job: Job, run: RunProgress | None, keys: Sequence[str], *, log: Path) -> str:
    values = label(job, keys)
    metric = f" · {run.metric}" if run and run.metric else ""
    outcome = {
        "running": f"started; log {log}",
        "done": f"done in {_minutes(job)} min{metric}",
        "done already": f"done already in {job.run}",
        "failed": f"FAILED: {job.cause}; log {log}",
    }
    return f"job {job.number}{f' ({values})' if values else ''}: {outcome.get(job.state, job.state)}"


def _minutes(job: Job) -> str:
    return "" if job.began is None else f"{((job.ended or time.time()) - job.began) / 60:.1f}"

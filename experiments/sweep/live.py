"""What the jobs of a sweep are doing, shown while they do it: a table on a terminal, lines elsewhere.

Nothing is told from job to job: their files are read, so that it does not matter in which process, or on which machine,
a job runs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.live import Live

from experiments.sweep.expected import varying
from experiments.sweep.job import LOG, Job, read_job, run_folder
from experiments.sweep.progress import Progress
from experiments.sweep.view import Row, as_line, as_table

LOOK_SECONDS = 1.0
FRAME = 8
"""Lines of the terminal that are not jobs."""
LOST = "its process ended without a word"


class LiveJobs:
    """Looks once a second, in a thread of its own.

    Args:
        sweep: the folder of the sweep.
        expected: its jobs as far as they are known beforehand.
        console: where to show them.
    """

    def __init__(self, *, sweep: Path, expected: Sequence[Job], console: Console) -> None:
        self.sweep = sweep
        self._expected = {job.number: job for job in expected}
        self._console = console
        self._progress: dict[int, Progress] = {}
        self._said: dict[int, str] = {}
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        if self._live is not None:
            self._live.start()
        self._thread.start()

    def stop(self) -> list[Job]:
        """Show the last state and let go of the terminal; the jobs as they ended."""
        self._over.set()
        self._thread.join()
        jobs = [replace(job, state="failed", cause=LOST) if job.state == "running" else job for job in self._jobs()]
        self._show(jobs)
        if self._live is not None:
            self._live.stop()
        return jobs

    def _watch(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            self._show(self._jobs())

    def _jobs(self) -> list[Job]:
        there = (read_job(path.parent) for path in self.sweep.glob("*/job.json"))
        begun = {job.number: job for job in there if job is not None}
        return [job for _, job in sorted((self._expected | begun).items())]

    def _show(self, jobs: Sequence[Job]) -> None:
        rows, keys = [self._row(job) for job in jobs], varying(jobs)
        if self._live is not None:
            height = self._console.height - FRAME
            self._live.update(as_table(rows, keys, title=f"sweep {self.sweep.name}", height=height), refresh=True)
            return
        for row in rows:
            if row.job.state not in (self._said.get(row.job.number), "waiting"):
                self._said[row.job.number] = row.job.state
                line = as_line(row, keys, log=str(self.sweep / str(row.job.number) / LOG))
                self._console.print(
                    f"{time.strftime('%H:%M:%S')}  {line}", soft_wrap=True, markup=False, highlight=False
                )

    def _row(self, job: Job) -> Row:
        run = run_folder(self.sweep / str(job.number), job)
        if run is None:
            return Row(job=job, where="starting", metric=None)
        progress = self._progress.setdefault(job.number, Progress(run))
        progress.look()
        return Row(job=job, where=progress.where, metric=progress.metric)

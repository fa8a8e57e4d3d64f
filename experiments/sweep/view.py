"""The jobs of a sweep as a person sees them: rows of a table on a terminal, else a line where a state changes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table
from rich.text import Text

from experiments.sweep.expected import label
from experiments.sweep.job import STATES, Job
from experiments.sweep.metric import Found

STYLES = {"running": "bold", "failed": "red", "done": "green", "done already": "green", "waiting": "dim"}
IMPORTANT = ("running", "failed", "stopped", "waiting", "done", "done already")
"""Which jobs are shown first where the terminal is too low for all."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A job, and what its run folder tells."""

    job: Job
    where: str
    """Stage and step while it runs."""
    metric: Found | None

    @property
    def state(self) -> str:
        return f"running {self.where}" if self.job.state == "running" else self.job.state

    @property
    def minutes(self) -> str:
        if self.job.began is None:
            return ""
        return f"{((self.job.ended or time.time()) - self.job.began) / 60:.1f}"


def as_table(rows: Sequence[Row], keys: Sequence[str], *, title: str, height: int) -> Table:
    """At most ``height`` jobs: those that run and those that failed before the others."""
    table = Table(title=title, caption=tally(rows), box=box.SIMPLE_HEAD, title_justify="left", caption_justify="left")
    for name in ("#", "job", "state", "metric", "minutes"):
        table.add_column(name, justify="right" if name in ("#", "minutes") else "left", overflow="fold")
    for row in shown(rows, height):
        metric = "" if row.metric is None else str(row.metric)
        cells = (str(row.job.number), label(row.job, keys), row.state, metric, row.minutes)
        table.add_row(*map(Text, cells), style=STYLES.get(row.job.state))
    return table


def shown(rows: Sequence[Row], height: int) -> list[Row]:
    """As many as fit, in their own order."""
    first = sorted(rows, key=lambda row: (IMPORTANT.index(row.job.state), row.job.number))[: max(height, 1)]
    return sorted(first, key=lambda row: row.job.number)


def tally(rows: Sequence[Row]) -> str:
    """``8 jobs: 5 waiting, 1 running, 2 done``."""
    counts = Counter(row.job.state for row in rows)
    parts = [f"{counts[state]} {state}" for state in STATES if counts[state]]
    return f"{len(rows)} job{'' if len(rows) == 1 else 's'}: {', '.join(parts)}"


def as_line(row: Row, keys: Sequence[str], *, log: str) -> str:
    """What is said when a job's state has changed."""
    name = f"job {row.job.number}" + (f" ({said})" if (said := label(row.job, keys)) else "")
    outcome = {
        "running": f"started; log {log}",
        "done": " · ".join([f"done in {row.minutes} min", *([] if row.metric is None else [str(row.metric)])]),
        "done already": f"done already in {row.job.run}",
        "failed": f"FAILED: {row.job.cause}; log {log}",
    }
    return f"{name}: {outcome.get(row.job.state, row.job.state)}"

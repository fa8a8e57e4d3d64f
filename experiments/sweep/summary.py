"""What came out of a sweep, over the values that it swept: the best first, seeds together, and what failed.

Read from the run folders, so that it holds without MLflow; ``summary.csv`` and pictures go into the sweep's folder.
"""

from __future__ import annotations

import csv
import io
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from experiments.analysis.set_table import three_decimals
from experiments.analysis.statistics import Estimate, over_seeds
from experiments.sweep.expected import ITSELF, label, varying
from experiments.sweep.job import LOG, Job, run_folder
from experiments.sweep.metric import PRIMARY, final_metrics
from experiments.sweep.view import Row as View
from experiments.sweep.view import tally
from experiments.system.files import write_text

CSV, DONE, SEED = "summary.csv", ("done", "done already"), "seed"
WIDE = 160
POSITIVE_COSINE = "train/clipo/positive_cosine"
"""Drawn beside the metric where jobs have it: it says what a temperature did to the contrastive space."""
CAPTION = "Mean ± half of the 95% t-interval over seeds, the best first."


@dataclass(frozen=True, kw_only=True)
class Row:
    """One point of the sweep, its seeds together."""

    values: Mapping[str, str]
    """Of the swept keys without the seed."""
    seeds: Mapping[str, float]
    """Seed → metric."""

    @property
    def estimate(self) -> Estimate:
        return over_seeds(list(self.seeds.values()))


def summarise(sweep: Path, jobs: Sequence[Job]) -> list[str]:
    """Print the table, write it and its pictures; returns the lines that follow it."""
    keys = [key for key in varying(jobs) if key not in ITSELF]
    found = {job.number: final_metrics(run_folder(sweep / str(job.number), job)) for job in jobs if job.state in DONE}
    metric = shared_metric(list(found.values()))
    lines = [tally([View(job=job, where="", metric=None) for job in jobs])]
    if metric is not None:
        rows, cosines = (rows_of(jobs, having(found, name), keys) for name in (metric, POSITIVE_COSINE))
        write_text(sweep / CSV, as_csv(rows, metric))
        console = Console()
        if not console.is_terminal:
            console.width = WIDE
        console.print(as_table(rows, metric))
        lines += [f"Written: {path}" for path in (sweep / CSV, *_pictures(sweep, rows, metric))]
        lines += [f"Written: {path}" for path in _pictures(sweep, cosines, POSITIVE_COSINE, ending=".positive_cosine")]
    elif found:
        lines.append(f"no job left any of {', '.join(PRIMARY)}: no table")
    return [*lines, *(failure(sweep, job, keys) for job in jobs if job.state == "failed")]


def shared_metric(jobs: Sequence[Mapping[str, float]]) -> str | None:
    """The first primary metric that most jobs have."""
    counts = {name: sum(name in job for job in jobs) for name in PRIMARY}
    return max(PRIMARY, key=lambda name: counts[name]) if any(counts.values()) else None


def having(found: Mapping[int, Mapping[str, float]], name: str) -> dict[int, float]:
    """One metric by the job's number, of the jobs that have it."""
    return {number: metrics[name] for number, metrics in found.items() if name in metrics}


def rows_of(jobs: Sequence[Job], values: Mapping[int, float], keys: Sequence[str]) -> list[Row]:
    """Jobs that differ by seed alone as one row, the greatest mean first; what is not finite last.

    Args:
        jobs: of the sweep.
        values: the metric by the job's number, of those that have it.
        keys: what varies over the sweep.
    """
    seeds: dict[tuple[tuple[str, str], ...], dict[str, float]] = defaultdict(dict)
    for job in jobs:
        if job.number in values:
            point = tuple((key, job.values[key]) for key in keys if key != SEED and key in job.values)
            seeds[point][job.values.get(SEED, str(job.number))] = values[job.number]
    rows = [Row(values=dict(point), seeds=found) for point, found in seeds.items()]
    return sorted(rows, key=lambda row: -row.estimate.value if math.isfinite(row.estimate.value) else math.inf)


def as_table(rows: Sequence[Row], metric: str) -> Table:
    """A column for each swept key."""
    table = Table(title=metric, caption=CAPTION, box=box.SIMPLE_HEAD, title_justify="left", caption_justify="left")
    keys = list(dict.fromkeys(key for row in rows for key in row.values))
    for name in (*keys, "seeds", "mean"):
        table.add_column(name, justify="left" if name in keys else "right", overflow="fold")
    for row in rows:
        cells = (*(row.values.get(key, "") for key in keys), str(len(row.seeds)), three_decimals(row.estimate))
        table.add_row(*map(Text, cells))
    return table


def as_csv(rows: Sequence[Row], metric: str) -> str:
    """Full precision, a line for each point."""
    keys = list(dict.fromkeys(key for row in rows for key in row.values))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*keys, "metric", "seeds", "mean", "half_95"])
    for row in rows:
        estimate = row.estimate
        writer.writerow([*(row.values.get(key, "") for key in keys), metric, estimate.n, estimate.value, estimate.half])
    return text.getvalue()


def failure(sweep: Path, job: Job, keys: Sequence[str]) -> str:
    return f"job {job.number} ({label(job, keys)}) FAILED: {job.cause}; log {sweep / str(job.number) / LOG}"


def _pictures(sweep: Path, rows: Sequence[Row], metric: str, ending: str = "") -> list[Path]:
    """One for each swept number, ``<key><ending>.png``; none where no job has a finite metric."""
    from experiments.sweep.picture import draw, numeric_keys

    if not any(math.isfinite(value) for row in rows for value in row.seeds.values()):
        return []
    paths = []
    for key in numeric_keys([row.values for row in rows]):
        paths.append(sweep / f"{key}{ending}.png")
        draw([(row.values, list(row.seeds.values())) for row in rows], key=key, metric=metric).savefig(
            paths[-1], dpi=160
        )
    return paths

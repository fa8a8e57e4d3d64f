"""What came out of a sweep: its table and pictures, and why jobs failed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.analysis.sweep import summarise_points
from experiments.sweep.expected import ITSELF, label, varying
from experiments.sweep.job import LOG, Job, run_folder
from experiments.sweep.metric import PRIMARY, final_metrics
from experiments.sweep.view import Row, tally

DONE = ("done", "done already")


def summarise(sweep: Path, jobs: Sequence[Job]) -> list[str]:
    """Print the table, write it and its pictures; returns the lines that follow it."""
    keys = [key for key in varying(jobs) if key not in ITSELF]
    values = {job.number: {key: job.values[key] for key in keys if key in job.values} for job in jobs}
    found = {job.number: final_metrics(run_folder(sweep / str(job.number), job)) for job in jobs if job.state in DONE}
    failures = [
        f"job {job.number} ({label(job, keys)}) FAILED: {job.cause}; log {sweep / str(job.number) / LOG}"
        for job in jobs
        if job.state == "failed"
    ]
    counts = tally([Row(job=job, where="", metric=None) for job in jobs])
    return [counts, *summarise_points(sweep, values, found, primary=PRIMARY), *failures]

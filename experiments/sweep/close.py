"""The two ends of a sweep's folder: cleared for a new beginning, and closed with what became of the sweep.

The jobs' mirrors have ended by then, so the sweep's run in MLflow, the jobs' parent, is carried once more.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from experiments.mirror import start_mirror, stop_mirror
from experiments.run_tree import read_config
from experiments.sweep.job import JOB, RUN, STOP, Job, run_folder
from experiments.sweep.state import End, SweepState, write_state


def open_sweep(sweep: Path) -> None:
    """From now on it runs; what an earlier one left in the same folder would be taken for its own."""
    for path in (sweep / STOP, *sweep.glob(f"*/{JOB}"), *sweep.glob(f"*/{RUN}")):
        path.unlink(missing_ok=True)
    write_state(sweep, SweepState())


def close_sweep(sweep: Path, end: End, jobs: Sequence[Job]) -> None:
    """Write how it ended, and have MLflow know: one parent for each experiment that it ran."""
    write_state(sweep, SweepState(state=end, ended=time.time()))
    began = (run_folder(sweep / str(job.number), job) for job in jobs if job.state != "done already")
    newest = {folder.parent: folder for folder in began if folder is not None}
    mirrors = {folder: start_mirror(folder) for folder in newest.values() if _logger(folder).get("mirror")}
    for folder, process in mirrors.items():
        if not stop_mirror(process, timeout=float(_logger(folder)["patience"])):
            print(f"MLflow has not everything yet; to send the rest: python -m experiments.track {folder}")


def _logger(folder: Path) -> dict[str, float]:
    return read_config(folder).get("logger", {})

"""The two ends of a sweep's folder: cleared for a new beginning, and closed with what became of the sweep.

The jobs' sync processes have ended by then, so the sweep's run in MLflow, their parent, is sent once more with its
table and pictures.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from experiments.mlflow_sync.sync import LOG_FILE, missing_from_mlflow, sync_apart
from experiments.run_folder import read_config, read_json
from experiments.sweep.job import JOB, RUN, STOP, Job, run_folder
from experiments.sweep.state import End, SweepState, write_state

START_SECONDS = 40.0
"""What importing MLflow may take on a busy machine, beside what ``logger.patience`` allows."""


def open_sweep(sweep: Path) -> None:
    """From now on it runs; what an earlier one left in the same folder would be taken for its own."""
    for path in (sweep / STOP, *sweep.glob(f"*/{JOB}"), *sweep.glob(f"*/{RUN}")):
        path.unlink(missing_ok=True)
    write_state(sweep, SweepState())


def close_sweep(sweep: Path, end: End, jobs: Sequence[Job]) -> list[str]:
    """Write how it ended, and send that to MLflow; returns a line where that did not succeed."""
    write_state(sweep, SweepState(state=end, ended=time.time()))
    one_of_each_experiment = {run.parent: run for run in _own_runs(sweep, jobs)}.values()
    loggers = {run: read_config(run).get("logger", {}) for run in one_of_each_experiment}
    patience = {run: float(logger["patience"]) for run, logger in loggers.items() if logger.get("mirror")}
    log = sweep / LOG_FILE
    if not patience or sync_apart([*patience], log, timeout=START_SECONDS + max(patience.values())):
        return []
    return [missing_from_mlflow([*patience], log)]


def _own_runs(sweep: Path, jobs: Sequence[Job]) -> Iterator[Path]:
    """The run folders of the jobs that ran as part of this sweep: that of one done already is of an earlier one."""
    for job in jobs:
        folder = run_folder(sweep / str(job.number), job)
        if folder is not None and read_json(folder / "sweep.json").get("sweep") == sweep.name:
            yield folder

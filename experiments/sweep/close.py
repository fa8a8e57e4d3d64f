"""The two ends of a sweep's folder: cleared for a new beginning, and closed with what became of the sweep.

The jobs' mirrors have ended by then, so the sweep's run in MLflow, their parent, is sent once more with what it drew.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from experiments.sweep.job import JOB, RUN, STOP, Job
from experiments.sweep.send import send_aside
from experiments.sweep.state import End, SweepState, write_state


def open_sweep(sweep: Path) -> None:
    """From now on it runs; what an earlier one left in the same folder would be taken for its own."""
    for path in (sweep / STOP, *sweep.glob(f"*/{JOB}"), *sweep.glob(f"*/{RUN}")):
        path.unlink(missing_ok=True)
    write_state(sweep, SweepState())


def close_sweep(sweep: Path, end: End, jobs: Sequence[Job]) -> list[str]:
    """Write how it ended, and have MLflow know; returns a line where that did not come to its end."""
    write_state(sweep, SweepState(state=end, ended=time.time()))
    return send_aside(sweep, jobs)

"""A sweep's end, table and pictures, sent to its run in MLflow; the folder has them whatever the tracker does.

    sweep ends ──► close_sweep ─► send_aside ──► python -m experiments.track RUN …   a process of its own, with a limit
    make sync ────────────────────────────────► send_sweeps

A sweep has a run in each experiment that its jobs belong to, made when the first of them is sent.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.sweep.job import Job, run_folder
from experiments.sweep.summary import CSV
from experiments.tracking.carry import not_all_sent
from experiments.tracking.run_tree import TrackedRun, find_run_folders, read_config, read_json, runs_of, sweep_folder
from experiments.tracking.sent import Memory, Sent

if TYPE_CHECKING:
    from experiments.track import Tracker

LOG = "mirror.log"
START_SECONDS = 40.0
"""What importing MLflow may take on a busy machine, beside what ``logger.patience`` grants the tracker."""


def send_aside(sweep: Path, jobs: Sequence[Job]) -> list[str]:
    """Send how it ended and what it drew, where its jobs send theirs; returns a line where that did not succeed."""
    one_of_each = {run.parent: run for run in _own_runs(sweep, jobs)}.values()
    loggers = {run: read_config(run).get("logger", {}) for run in one_of_each}
    patience = {str(run): float(logger["patience"]) for run, logger in loggers.items() if logger.get("mirror")}
    if not patience:
        return []
    command = ["-m", "experiments.track", *patience]
    if _ended_well(command, sweep / LOG, seconds=START_SECONDS + max(patience.values())):
        return []
    return [f"MLflow has not all of the sweep yet; to send the rest: python {' '.join(command)}"]


def send_sweeps(roots: Sequence[Path], connect: Callable[[], Tracker]) -> bool:
    """Send what the sweeps drew whose jobs' run folders are at or under ``roots``; whether all of it is there now."""
    found = dict(_drawn(folder for root in roots for folder in find_run_folders(root)))
    if not found:
        return True
    tracker = connect()
    return all([_sent(sweep, run, tracker) for run, sweep in found.values()])


def _ended_well(command: Sequence[str], log: Path, *, seconds: float) -> bool:
    with log.open("ab") as said:
        try:
            done = subprocess.run(
                [sys.executable, *command],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return False
    return done.returncode == 0


def _own_runs(sweep: Path, jobs: Sequence[Job]) -> Iterator[Path]:
    """The run folders of the jobs that ran as part of this sweep: that of one done already is of an earlier one."""
    for job in jobs:
        folder = run_folder(sweep / str(job.number), job)
        if folder is not None and read_json(folder / "sweep.json").get("sweep") == sweep.name:
            yield folder


def _drawn(folders: Iterator[Path]) -> Iterator[tuple[tuple[str, str], tuple[Path, Path]]]:
    """(Experiment, sweep) → the folder of one of its jobs, and the sweep's own where that has a table."""
    for folder in folders:
        entry = read_json(folder / "sweep.json")
        if entry and (table := sweep_folder(folder, entry) / CSV).exists():
            yield (folder.parent.name, str(entry["sweep"])), (folder, table.parent)


def _sent(sweep: Path, folder: Path, tracker: Tracker) -> bool:
    """Whether MLflow has it all; what went wrong is said and mended by the next ``make sync``."""
    try:
        return _send(sweep, runs_of(folder)[0], tracker)
    except Exception as error:  # a mistake of ours, too, keeps no other sweep from being sent
        print(not_all_sent(sweep, error), flush=True)
        return False


def _send(sweep: Path, run: TrackedRun, tracker: Tracker) -> bool:
    """The files that are new since they were last sent; False while the sweep has no run: its jobs come first."""
    found = tracker.find_run(run.tags["experiment"], run.key)
    if found is None:
        return False
    if found.deleted:
        return True
    memory = Memory(sweep, tracker.address)
    if run.key not in memory.runs or memory.runs[run.key].run_id != found.run_id:
        memory.runs[run.key] = Sent(run_id=found.run_id)
    files = memory.runs[run.key].files
    for path in (sweep / CSV, *sorted(sweep.glob("*.png"))):
        if files.get(path.name) != (now := path.stat().st_mtime_ns):
            tracker.log_file(found.run_id, path, "")
            files[path.name] = now
    memory.save()
    return True

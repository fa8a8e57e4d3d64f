"""Bring a tracker up to date with run folders: once (``sync``), or again and again while a run goes on (``follow``).

Everything sent is remembered in the folder, found again by tag if that is lost, and never sent in a way that a second
sending would show. A tracker that does not answer is asked again at the next pass.
"""

from __future__ import annotations

import json
import select
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from experiments.sweep.state import End
from experiments.system.first_line import first_line
from experiments.system.lock import lock
from experiments.system.secret_values import concealed
from experiments.tracking.metrics_file import complete_lines
from experiments.tracking.named_runs import check_names
from experiments.tracking.run_tree import Kind, TrackedRun, find_run_folders, headline_metrics, runs_of
from experiments.tracking.sent import Found, Memory, Sent
from experiments.tracking.tracker_error import TrackerError

if TYPE_CHECKING:
    from experiments.track import Tracker

PASS_SECONDS = 5.0
LAST_PASSES, PAUSE_SECONDS = 3, 1.0
LOCK_FILE = ".mirror.lock"
CHUNK = 1000
STATUS: dict[End, str] = {"done": "FINISHED", "failed": "FAILED", "stopped": "KILLED"}
FILES: dict[Kind, tuple[str, ...]] = {
    "sweep": ("sweep.json",),
    "experiment": (
        "config.yaml",
        "choices.json",
        "origin.json",
        "stages.json",
        "summary.json",
        "failure.json",
        "environment.json",
        "installed.txt",
    ),
    "stage": ("config.yaml", "result.json", "summary.md", "figures/**/*.png", "pages/**/*.html"),
}


class Carrier:
    """Brings one tracker up to date with one experiment's folder."""

    def __init__(self, folder: Path, tracker: Tracker) -> None:
        self.folder = folder
        self.tracker = tracker
        self.memory = Memory(folder, tracker.address)
        self._seen: set[str] = set()

    def carry(self, *, live: bool) -> None:
        """Send what is new. ``live``: the experiment still runs; otherwise one without an end was killed."""
        for run in runs_of(self.folder):
            sent = self._ensure(run)
            if sent is None:
                continue
            self._describe(run, sent)
            self._send_files(run, sent)
            if run.kind == "stage":
                self._send_metrics(run, sent)
                self._send_tables(run, sent)
                self._send_model(run, sent)
            if run.kind == "experiment" and (run.end or not live):
                self.tracker.log_metrics(sent.run_id, headline_metrics(self.folder))
            self._set_status(run, sent, live=live)
            self.memory.save()

    def _ensure(self, run: TrackedRun) -> Sent | None:
        """What was sent of a run, which the tracker has afterwards; None for one that a person deleted there."""
        if run.key not in self._seen:
            with lock(self.folder.parent / LOCK_FILE):  # the jobs of a sweep make their common parent once
                found = self.tracker.find_run(run.tags["experiment"], run.key)
                run_id, deleted, status = found or Found(self._create(run), deleted=False, status="RUNNING")
            if deleted:
                return None
            if run.key not in self.memory.runs or self.memory.runs[run.key].run_id != run_id:
                self.memory.runs[run.key] = Sent(run_id=run_id)
            self.memory.runs[run.key].status = status  # of a sweep it is sent by the mirrors of all its jobs
            self._seen.add(run.key)
        return self.memory.runs[run.key]

    def _create(self, run: TrackedRun) -> str:
        above = self.memory.runs.get(run.parent) if run.parent is not None else None
        parent = None if above is None else above.run_id  # a person may have deleted it
        tags = {**run.tags, "key": run.key, "kind": run.kind}
        return self.tracker.create_run(
            run.tags["experiment"], name=run.name, start=started(run.folder), tags=tags, parent=parent
        )

    def _describe(self, run: TrackedRun, sent: Sent) -> None:
        if not sent.described and run.params:
            self.tracker.describe(sent.run_id, params=run.params, tags=run.tags)
            if run.data_sets:
                self.tracker.log_data_sets(sent.run_id, run.data_sets)
            sent.described = True

    def _send_metrics(self, run: TrackedRun, sent: Sent) -> None:
        while lines := list(islice(complete_lines(run.folder, start=sent.offset), CHUNK)):
            self.tracker.log_metrics(sent.run_id, [metric for metric, _ in lines])
            sent.offset = lines[-1][1]
            self.memory.save()

    def _send_files(self, run: TrackedRun, sent: Sent) -> None:
        for path in sorted(path for pattern in FILES[run.kind] for path in run.folder.glob(pattern)):
            if self._changed(path, run, sent):
                folder = path.parent.relative_to(run.folder).as_posix()
                self.tracker.log_file(sent.run_id, path, "" if folder == "." else folder)

    def _send_model(self, run: TrackedRun, sent: Sent) -> None:
        """A small policy once it is whole; the tag ``model`` says where it is."""
        if run.model is None or sent.model:
            return
        for path in run.model.files:
            self.tracker.log_file(sent.run_id, path, path.parent.relative_to(run.folder).as_posix())
        self.tracker.describe(sent.run_id, params={}, tags={"model": run.model.said})
        sent.model = True

    def _send_tables(self, run: TrackedRun, sent: Sent) -> None:
        """Each table once, with the rows of all its steps: the steps can then be filtered on the tracker's page."""
        for folder in sorted({path.parent for path in run.folder.glob("tables/**/*.json")}):
            files = sorted(folder.glob("*.json"), key=lambda path: int(path.stem))
            if any([self._changed(path, run, sent) for path in files]):
                rows = [{"step": int(path.stem), **row} for path in files for row in json.loads(path.read_text())]
                self.tracker.log_table(sent.run_id, folder.relative_to(run.folder / "tables").as_posix(), rows)

    def _changed(self, path: Path, run: TrackedRun, sent: Sent) -> bool:
        """Whether a file is new since it was last sent; it counts as sent from now on, as the pass either ends or is
        forgotten."""
        name, now = path.relative_to(run.folder).as_posix(), path.stat().st_mtime_ns
        before, sent.files[name] = sent.files.get(name), now
        return before != now

    def _set_status(self, run: TrackedRun, sent: Sent, *, live: bool) -> None:
        status = STATUS[run.end] if run.end else "RUNNING" if live or run.kind == "sweep" else "KILLED"
        if status != sent.status:
            self.tracker.set_status(sent.run_id, status, end=ended(run))
            sent.status = status


def started(folder: Path) -> float:
    """When a run began: its first metric, else the moment its configuration was written, else now."""
    first = next(complete_lines(folder), None)
    if first is not None:
        return first[0].time
    config = folder / "config.yaml"
    return config.stat().st_mtime if config.exists() else time.time()


def not_all_sent(folder: Path, error: Exception) -> str:
    """What is said of a folder: a line where the tracker stumbled; of any other error also where it was made."""
    if isinstance(error, TrackerError):
        return f"{folder}: not all was sent ({error})"
    line = f"{folder}: not all was sent ({type(error).__name__}: {concealed(first_line(error))})"
    if isinstance(error, OSError):
        return line
    return f"{line}, unforeseen:\n{concealed(''.join(traceback.format_exception(error)))}"


class Passes:
    """Passes over one experiment's folder. What goes wrong is said and mended by a later pass; each begins by looking
    at what is there, so none leaves anything twice.
    """

    def __init__(self, folder: Path, connect: Callable[[], Tracker]) -> None:
        self.folder = folder
        self.connect = connect
        self._carrier: Carrier | None = None
        self._said = ""

    def once(self, *, live: bool) -> bool:
        """One pass; whether all was sent."""
        try:
            self._carrier = self._carrier or Carrier(self.folder, self.connect())
            self._carrier.carry(live=live)
        except Exception as error:  # a mistake of ours, too, ends no night of training, but is told as one
            self._carrier = None  # what it believed to be sent may not have been
            self._say(not_all_sent(self.folder, error))
            return False
        self._said = ""
        return True

    def last(self) -> bool:
        """A pass over what no longer changes, tried again where the tracker stumbles; whether all was sent."""
        for left in reversed(range(LAST_PASSES)):
            if self.once(live=False):
                return True
            time.sleep(PAUSE_SECONDS if left else 0)
        return False

    def _say(self, sentence: str) -> None:
        """Once, not every few seconds of a night."""
        if sentence != self._said:
            print(sentence, flush=True)
        self._said = sentence


def sync(roots: Sequence[Path], connect: Callable[[], Tracker]) -> bool:
    """Send what is missing of every run folder at or under ``roots``; True if the tracker has everything now.

    Raises:
        NoSuchRuns: for a root by a name that is not there; then nothing is sent.
    """
    check_names(roots)
    folders = [folder for root in roots for folder in find_run_folders(root)]
    if not folders:
        print(f"No run folder in {', '.join(map(str, roots))}: there is nothing to send.")
        return True
    tracker = connect()
    sent = [_sync_one(folder, tracker) for folder in folders]
    print(f"{sum(sent)} of {len(sent)} run folders are in MLflow at {tracker.address}.")
    return all(sent)


def _sync_one(folder: Path, tracker: Tracker) -> bool:
    with lock(folder / LOCK_FILE, wait=False) as mine:
        if not mine:
            print(f"{folder}: left to its own mirror, which is at work.")
            return True
        return Passes(folder, lambda: tracker).last()


def follow(folder: Path, connect: Callable[[], Tracker], wishes: TextIO = sys.stdin) -> bool:
    """Carry a folder every few seconds until ``wishes`` speaks or ends, then once more; True if that pass succeeds."""
    with lock(folder / LOCK_FILE):
        passes, wait = Passes(folder, connect), 0.0
        while not select.select([wishes], [], [], wait)[0]:
            passes.once(live=True)
            wait = PASS_SECONDS
        return passes.last()


def ended(run: TrackedRun) -> float:
    """When a run ended: as it says itself, else its closing file was written, else its last metric, else now."""
    if run.ended is not None:
        return run.ended
    closing = run.folder / ("result.json" if run.kind == "stage" else "summary.json")
    if closing.exists():
        return closing.stat().st_mtime
    times = [metric.time for metric, _ in complete_lines(run.folder)]
    return times[-1] if times else time.time()

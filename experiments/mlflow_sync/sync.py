"""Sends run folders to MLflow: once (``sync``), or repeatedly during a run (``follow``).

The run folder's ``mirror.json`` records what was sent, by tracking address. If that file is lost, runs are found again
by tag. Sending the same data twice has no effect. If MLflow does not respond, the next pass tries again.

``experiments/run_folder/mirror.py`` starts and stops ``follow`` as a process.
"""

from __future__ import annotations

import json
import select
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import TextIO

from experiments.mlflow_sync.describe import Kind, RunDescription, describe, headline_metrics
from experiments.mlflow_sync.store import TrackerError
from experiments.mlflow_sync.tracker import Tracker
from experiments.run_folder.mirror import NOT_ALL, UNFORESEEN
from experiments.run_folder.reader import (
    ENVIRONMENT,
    FAILURE,
    INSTALLED,
    MANIFEST,
    ORIGIN,
    POLICY,
    RESULT,
    STAGES,
    SUMMARY,
    SWEEP_FILE,
    complete_lines,
    find_run_folders,
    read_json,
    sweep_folder,
)
from experiments.system.files import lock, write_json
from experiments.system.secrets import hide_secrets
from experiments.system.terminal import first_line

MEMORY_FILE, LOCK_FILE = "mirror.json", ".mirror.lock"
PASS_SECONDS, LAST_PASSES, PAUSE_SECONDS = 5.0, 3, 1.0
CHUNK = 1000  # metrics sent between two writes of mirror.json
FILES: dict[Kind, tuple[str, ...]] = {
    "sweep": (SWEEP_FILE,),
    "experiment": ("config.yaml", "choices.json", ORIGIN, STAGES, SUMMARY, FAILURE, ENVIRONMENT, INSTALLED),
    "stage": ("config.yaml", MANIFEST, RESULT, "summary.md", "figures/**/*.png", "pages/**/*.html"),
}
SWEEP_NOTE = "summary.md"  # in the sweep folder; shown at the top of the sweep's page in MLflow
SWEEP_RESULTS = ("summary.csv", "metrics.csv", SWEEP_NOTE, "*.png")  # files of the sweep folder, sent to its run


@dataclass(kw_only=True)
class Sent:
    """Record of what was sent for one run."""

    run_id: str
    described: bool = False  # parameters and tags
    offset: int = 0  # bytes of ``metrics.jsonl``
    files: dict[str, int] = field(default_factory=dict)  # path in the folder → modification time in nanoseconds
    model: bool = False  # the policy was sent, or is too large to send
    status: str = "RUNNING"


class FolderSync:
    """Sends the new content of one run folder to one tracker."""

    def __init__(self, folder: Path, tracker: Tracker) -> None:
        self.folder = folder
        self.tracker = tracker
        known = read_json(folder / MEMORY_FILE).get(tracker.address, {})
        known_fields = Sent.__dataclass_fields__.keys()  # entries of another version are dropped and found again by tag
        self._sent = {key: Sent(**entry) for key, entry in known.items() if entry.keys() <= known_fields}
        self._ensured: set[str] = set()

    def send(self, *, live: bool) -> None:
        """Sends what is new. ``live``: the run is still going; if False, a run without a status counts as killed."""
        for run in describe(self.folder):
            if (sent := self._ensure(run)) is None:
                continue
            status = run.status or ("RUNNING" if live or run.kind == "sweep" else "KILLED")
            if not sent.described and run.params:
                self.tracker.describe(sent.run_id, params=run.params, tags=run.tags)
                sent.described = True
            elif status != sent.status:  # some tags are only known at the end
                self.tracker.describe(sent.run_id, params={}, tags=run.tags)
            self._send_files(run, sent)
            if run.kind == "stage":
                self._send_metrics(run, sent)
                self._send_tables(run, sent)
                self._send_policy(run, sent)
            if status != sent.status:
                if run.kind == "experiment" and status != "RUNNING":
                    self.tracker.log_metrics(sent.run_id, headline_metrics(self.folder))
                self.tracker.set_status(sent.run_id, status, end=_end_time(run))
                sent.status = status
            self._remember()

    def _ensure(self, run: RunDescription) -> Sent | None:
        """Creates the run in MLflow if needed and returns its record; None if a person deleted it there."""
        if run.key in self._ensured:
            return self._sent[run.key]
        with lock(self.folder.parent / LOCK_FILE):  # so that the jobs of a sweep create their parent once
            found = self.tracker.find_run(run.tags["experiment"], run.key)
            if found is None:
                above = self._sent.get(run.parent or "")  # also None if a person deleted it
                run_id = self.tracker.create_run(
                    run.tags["experiment"],
                    name=run.name,
                    start=_start_time(run.folder),
                    tags={**run.tags, "key": run.key, "kind": run.kind},
                    parent=above and above.run_id,
                )
            elif found.lifecycle_stage == "deleted":
                return None
            else:
                run_id = found.run_id
        sent = self._sent.get(run.key)
        if sent is None or sent.run_id != run_id:
            sent = self._sent[run.key] = Sent(run_id=run_id)
        # read from MLflow, not from mirror.json: the sync processes of all jobs send the status of a sweep
        sent.status = "RUNNING" if found is None else found.status
        self._ensured.add(run.key)
        return sent

    def _send_files(self, run: RunDescription, sent: Sent) -> None:
        places = [(run.folder, pattern) for pattern in FILES[run.kind]]
        if run.kind == "sweep" and (sweep := sweep_folder(run.folder)):
            places += [(sweep, pattern) for pattern in SWEEP_RESULTS]
        for folder, pattern in places:
            for path in sorted(folder.glob(pattern)):
                if _has_changed(path, folder, sent):
                    self.tracker.log_file(sent.run_id, path, _place(path, folder))
                    if run.kind == "sweep" and path.name == SWEEP_NOTE:
                        pictures = sorted(picture.name for picture in folder.glob("*.png"))
                        text = path.read_text(encoding="utf-8")
                        self.tracker.write_note(sent.run_id, text, pictures=pictures)

    def _send_metrics(self, run: RunDescription, sent: Sent) -> None:
        while lines := list(islice(complete_lines(run.folder, start=sent.offset), CHUNK)):
            self.tracker.log_metrics(sent.run_id, [metric for metric, _ in lines])
            sent.offset = lines[-1][1]
            self._remember()

    def _send_tables(self, run: RunDescription, sent: Sent) -> None:
        """Sends each table as one, with the rows of all steps, so that MLflow's page can filter by step."""
        for folder in sorted({path.parent for path in run.folder.glob("tables/**/*.json")}):
            files = sorted(folder.glob("*.json"), key=lambda path: int(path.stem))
            # any() of a list, not of a generator: each call marks its file as sent, so none may be left out
            if any([_has_changed(path, run.folder, sent) for path in files]):
                tables = ((int(path.stem), json.loads(path.read_text(encoding="utf-8"))) for path in files)
                rows = [{"step": step, **row} for step, table in tables for row in table]
                self.tracker.log_table(sent.run_id, folder.relative_to(run.folder / "tables").as_posix(), rows)

    def _send_policy(self, run: RunDescription, sent: Sent) -> None:
        """Sends the policy in Hugging Face format, unless it exceeds ``logger.model_megabytes``.

        The tag ``model`` holds its artifact path, or the reason it was not sent and its local path.
        """
        files = sorted(path for path in (run.folder / POLICY).rglob("*") if path.is_file())
        if not files or run.model_megabytes is None or sent.model:
            return
        megabytes = sum(path.stat().st_size for path in files) / 10**6
        tag = f"{POLICY}/"
        if megabytes > run.model_megabytes:
            limit = f"{megabytes:,.1f} MB are more than logger.model_megabytes={run.model_megabytes:g}"
            files, tag = [], f"{limit}: {run.folder / POLICY}"
        for path in files:
            self.tracker.log_file(sent.run_id, path, _place(path, run.folder))
        self.tracker.describe(sent.run_id, params={}, tags={"model": tag})
        sent.model = True

    def _remember(self) -> None:
        path = self.folder / MEMORY_FILE
        sent = {key: asdict(one) for key, one in self._sent.items()}
        write_json(path, read_json(path) | {self.tracker.address: sent})


def _place(path: Path, folder: Path) -> str:
    """Returns the artifact folder in MLflow for a file below ``folder``; "" is the root."""
    return path.parent.relative_to(folder).as_posix().removeprefix(".")


def _has_changed(path: Path, folder: Path, sent: Sent) -> bool:
    """Whether a file changed since it was last sent. Marks it as sent; a failed pass discards the mark."""
    name, now = path.relative_to(folder).as_posix(), path.stat().st_mtime_ns
    before, sent.files[name] = sent.files.get(name), now
    return before != now


def _start_time(folder: Path) -> float:
    """Start of a run: the time of its first metric, else when its configuration was written, else now."""
    if (first := next(complete_lines(folder), None)) is not None:
        return first[0].time
    config = folder / "config.yaml"
    return config.stat().st_mtime if config.exists() else time.time()


def _end_time(run: RunDescription) -> float:
    """End of a run: as its files record, else when its closing file was written, else its last metric, else now."""
    if run.ended is not None:
        return run.ended
    closing = run.folder / (RESULT if run.kind == "stage" else SUMMARY)
    if closing.exists():
        return closing.stat().st_mtime
    *_, last = [time.time(), *(metric.time for metric, _ in complete_lines(run.folder))]
    return last


class Passes:
    """Runs passes over one run folder. Prints each failure once; a later pass sends what is missing."""

    def __init__(self, folder: Path, connect: Callable[[], Tracker]) -> None:
        self.folder = folder
        self.connect = connect
        self._sync: FolderSync | None = None
        self._printed = ""

    def once(self, *, live: bool) -> bool:
        """Runs one pass and returns whether everything was sent."""
        sentence = ""
        try:
            self._sync = self._sync or FolderSync(self.folder, self.connect())
            self._sync.send(live=live)
        except Exception as error:  # no error, not even a bug here, may stop the sync of a long training
            self._sync = None  # its record may list data that was not sent
            sentence = f"{self.folder}{NOT_ALL}{_explain(error)}"
        if sentence and sentence != self._printed:
            print(sentence, flush=True)
        self._printed = sentence
        return not sentence

    def last(self) -> bool:
        """Runs the pass after the run's end, up to ``LAST_PASSES`` times; returns whether everything was sent."""
        for left in reversed(range(LAST_PASSES)):
            if self.once(live=False):
                return True
            time.sleep(PAUSE_SECONDS if left else 0)
        return False


def _explain(error: Exception) -> str:
    """Returns one line for an error of MLflow or a file; for any other error, the traceback as well."""
    if isinstance(error, TrackerError):
        return f"({error})"
    line = f"({type(error).__name__}: {hide_secrets(first_line(error))})"
    if isinstance(error, OSError):
        return line
    return f"{line}{UNFORESEEN}\n{hide_secrets(''.join(traceback.format_exception(error)))}"


def sync(roots: Sequence[Path], connect: Callable[[], Tracker]) -> bool:
    """Sends what MLflow lacks of every run folder at or under ``roots``. Returns whether every folder was sent.

    A folder that its own sync process has locked is left to that process and counts as sent.
    """
    folders = [folder for root in roots for folder in find_run_folders(root)]
    if not folders:
        print(f"No run folder in {', '.join(map(str, roots))}: there is nothing to send.")
        return True
    tracker = connect()
    sent = [_sync_one(folder, tracker) for folder in folders]
    print(f"{sum(sent)} of {len(sent)} run folders are in MLflow at {tracker.address}.")
    return all(sent)


def _sync_one(folder: Path, tracker: Tracker) -> bool:
    with lock(folder / LOCK_FILE, wait=False) as ours:
        if not ours:
            print(f"{folder}: left to its own sync process, which is at work.")
            return True
        return Passes(folder, lambda: tracker).last()


def follow(folder: Path, connect: Callable[[], Tracker], commands: TextIO = sys.stdin) -> bool:
    """Sends what is new every ``PASS_SECONDS`` until ``commands`` has a byte or ends, then sends the rest.

    Returns whether everything was sent.
    """
    with lock(folder / LOCK_FILE):
        passes, wait = Passes(folder, connect), 0.0
        while not select.select([commands], [], [], wait)[0]:
            passes.once(live=True)
            wait = PASS_SECONDS
        return passes.last()

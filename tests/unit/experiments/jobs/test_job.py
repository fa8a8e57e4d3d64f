"""State files of a group of jobs, and the parent run of a sweep in MLflow, which follows the state."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.config.hints import python_command
from experiments.jobs.job import Job
from experiments.mlflow_sync import Tracker
from experiments.mlflow_sync.sync import FolderSync
from experiments.run_folder.group_state import GroupState, read_state, write_state
from experiments.run_folder.reader import JOB_RUN
from experiments.sweep import send_to_mlflow
from experiments.system.files import write_json

SWEEP = "2026-01-01T00-00-00"


@pytest.fixture
def sweep(outputs: Any) -> Path:
    return outputs.root / "sweeps" / SWEEP


def start_job(outputs: Any, name: str, *, number: int, mirror: bool = False) -> tuple[Path, Job]:
    """Returns the folder of a job's unfinished run, and the job in its final state."""
    folder = outputs.run(name, seed=number, final=0.4, sweep=SWEEP)
    (folder / "summary.json").unlink()
    with (folder / "config.yaml").open("a") as config:
        config.write(f"logger:\n  mirror: {str(mirror).lower()}\n  patience: 120\n")
    write_json(outputs.root / "sweeps" / SWEEP / str(number) / JOB_RUN, {"folder": str(folder)})
    return folder, Job(number=number, overrides=(f"seed={number}",), state="failed")


def status(tracker: Tracker, name: str) -> str:
    (parent,) = tracker.runs([name], kind="sweep")
    return parent.status


def send(folder: Path, tracker: Tracker, *, live: bool = False) -> None:
    """Syncs as a separate process does."""
    FolderSync(folder, tracker).send(live=live)


def test_parent_run_gets_final_state_and_end_of_sweep(tracker: Tracker, outputs: Any, sweep: Path) -> None:
    write_state(sweep, GroupState())
    folder, _ = start_job(outputs, "sweep_ends", number=0)
    (folder / "summary.json").write_text("{}")
    send(folder, tracker)
    assert status(tracker, "sweep_ends") == "RUNNING", "another job is yet to begin"
    write_state(sweep, GroupState(state="stopped", ended=1_700_000_000.5))
    send(folder, tracker)
    (parent,) = tracker.runs(["sweep_ends"], kind="sweep")
    assert parent.status == "KILLED"
    assert tracker._client.get_run(parent.run_id).info.end_time == 1_700_000_000_500


@pytest.mark.parametrize("last", [0, 1])
def test_resumed_sweep_sets_parent_run_to_running(tracker: Tracker, outputs: Any, sweep: Path, last: int) -> None:
    """The sync of a new job has no record of the first end, that of an old job no record of later events."""
    name = f"sweep_again_{last}"
    first, _ = start_job(outputs, name, number=0)
    write_state(sweep, GroupState(state="failed"))
    send(first, tracker)
    write_state(sweep, GroupState())
    second, _ = start_job(outputs, name, number=1)
    send(second, tracker, live=True)
    assert status(tracker, name) == "RUNNING"
    write_state(sweep, GroupState(state="done"))
    send((first, second)[last], tracker)
    assert status(tracker, name) == "FINISHED"
    write_state(sweep, GroupState())
    send(second, tracker, live=True)
    write_state(sweep, GroupState(state="failed"))
    send(first, tracker)
    assert status(tracker, name) == "FAILED"


def test_read_state_returns_stopped_after_process_was_killed(tmp_path: Path) -> None:
    """Detected only on the same machine: elsewhere its process ids mean nothing."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    elsewhere = GroupState(pid=gone.pid, host="elsewhere")
    for state, end in (
        (GroupState(pid=os.getpid()), "running"),
        (elsewhere, "running"),
        (GroupState(pid=gone.pid), "stopped"),
        (replace(elsewhere, state="done"), "done"),
        (GroupState(pid=gone.pid, state="failed"), "failed"),
    ):
        write_state(tmp_path, state)
        read = read_state(tmp_path)
        assert read is not None
        assert read.state == end
    assert read_state(tmp_path / "nobody watches") is None


def test_sweep_is_sent_to_each_of_its_experiments(tracker: Tracker, outputs: Any, sweep: Path) -> None:
    """By a separate process, as those of the jobs have ended. Jobs without sync and earlier runs are not sent."""
    jobs = [
        start_job(outputs, "sweep_sent_a", number=0, mirror=True)[1],
        start_job(outputs, "sweep_sent_b", number=1, mirror=True)[1],
        start_job(outputs, "sweep_unsent", number=2)[1],
        replace(start_job(outputs, "sweep_before", number=3, mirror=True)[1], state="done already"),
    ]
    earlier = jobs[3].run_folder(sweep)
    assert earlier is not None
    write_json(earlier / "sweep.json", {"sweep": "an earlier one"})
    write_state(sweep, GroupState(state="failed"))
    assert send_to_mlflow(sweep, jobs) == []
    assert [status(tracker, name) for name in ("sweep_sent_a", "sweep_sent_b")] == ["FAILED", "FAILED"]
    assert not [run for name in ("sweep_unsent", "sweep_before") for run in tracker.runs([name], kind="sweep")]


def test_unreachable_mlflow_adds_one_line(outputs: Any, sweep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, job = start_job(outputs, "sweep_dead", number=0, mirror=True)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nonsense:/x")
    (line,) = send_to_mlflow(sweep, [job])
    assert line.startswith(
        f"MLflow does not have everything yet; to send the rest: {python_command()} -m experiments.track {folder}\n"
    )

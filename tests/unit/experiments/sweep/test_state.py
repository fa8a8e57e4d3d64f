"""What MLflow says of a sweep: its state is written by who watches it, and its parent follows."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.mlflow_sync import Tracker
from experiments.mlflow_sync.sync import FolderSync
from experiments.sweep.close import close_sweep, open_sweep
from experiments.sweep.job import RUN, STOP, Job, read_job, run_folder, write_job
from experiments.sweep.state import STATE, End, SweepState, read_state, write_state
from experiments.system.files import write_json

SWEEP = "2026-01-01T00-00-00"


def folder_of(outputs: Any) -> Path:
    return outputs.root / "sweeps" / SWEEP


def begun(outputs: Any, name: str, *, number: int, mirror: bool = False) -> tuple[Path, Job]:
    """A run folder of a job, not ended yet, and the job as it will have ended."""
    folder, sweep = outputs.run(name, seed=number, final=0.4, sweep=SWEEP), folder_of(outputs)
    (folder / "summary.json").unlink()
    with (folder / "config.yaml").open("a") as config:
        config.write(f"logger:\n  mirror: {str(mirror).lower()}\n  patience: 120\n")
    write_json(sweep / str(number) / RUN, {"folder": str(folder)})
    write_job(sweep / str(number), job := Job(number=number, overrides=(f"seed={number}",), state="failed"))
    return folder, job


def status(tracker: Tracker, name: str) -> str:
    (parent,) = tracker.runs([name], kind="sweep")
    return parent.status


def carry(folder: Path, tracker: Tracker, *, live: bool = False) -> None:
    """As a process of its own would."""
    FolderSync(folder, tracker).send(live=live)


@pytest.mark.parametrize(("end", "said"), [("done", "FINISHED"), ("failed", "FAILED"), ("stopped", "KILLED")])
def test_a_parent_ends_as_its_sweep_does(tracker: Tracker, outputs: Any, end: End, said: str) -> None:
    name = f"sweep_{end}"
    open_sweep(folder_of(outputs))
    folder, job = begun(outputs, name, number=0)
    (folder / "summary.json").write_text("{}")
    carry(folder, tracker)
    assert status(tracker, name) == "RUNNING", "another job is yet to begin"
    close_sweep(folder_of(outputs), end, [job])
    carry(folder, tracker)
    (parent,) = tracker.runs([name], kind="sweep")
    assert parent.status == said
    state = read_state(folder_of(outputs))
    assert state is not None
    assert state.ended is not None
    assert tracker._client.get_run(parent.run_id).info.end_time == round(1000 * state.ended)


@pytest.mark.parametrize("last", [0, 1])
def test_a_sweep_that_goes_on_in_its_folder_runs_again(tracker: Tracker, outputs: Any, last: int) -> None:
    """The mirror of a new job knows nothing of the first end, and that of an old one nothing of what came after."""
    name = f"sweep_again_{last}"
    sweep = folder_of(outputs)
    open_sweep(sweep)
    first, failed = begun(outputs, name, number=0)
    close_sweep(sweep, "failed", [failed])
    carry(first, tracker)
    open_sweep(sweep)
    second, done = begun(outputs, name, number=1)
    carry(second, tracker, live=True)
    assert status(tracker, name) == "RUNNING"
    close_sweep(sweep, "done", [done])
    carry((first, second)[last], tracker)
    assert status(tracker, name) == "FINISHED"
    open_sweep(sweep)
    carry(second, tracker, live=True)
    close_sweep(sweep, "failed", [done])
    carry(first, tracker)
    assert status(tracker, name) == "FAILED"


def test_one_whose_process_was_killed_was_stopped(tracker: Tracker, outputs: Any) -> None:
    """Seen where it ran only: no other machine knows its processes."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    folder, _ = begun(outputs, "sweep_killed", number=0)
    elsewhere = SweepState(pid=gone.pid, host="elsewhere")
    for state, said in (
        (SweepState(pid=os.getpid()), "RUNNING"),
        (elsewhere, "RUNNING"),
        (SweepState(pid=gone.pid), "KILLED"),
        (replace(elsewhere, state="done"), "FINISHED"),
    ):
        write_state(folder_of(outputs), state)
        carry(folder, tracker)
        assert status(tracker, "sweep_killed") == said


def test_a_sweep_of_two_experiments_has_both_parents_told(tracker: Tracker, outputs: Any) -> None:
    """By a process of its own, as the jobs' have ended; one that is to be sent later is left alone."""
    begins = [
        begun(outputs, "sweep_told_a", number=0, mirror=True),
        begun(outputs, "sweep_told_b", number=1, mirror=True),
        begun(outputs, "sweep_untold", number=2),
    ]
    close_sweep(folder_of(outputs), "failed", [job for _, job in begins])
    assert [status(tracker, name) for name in ("sweep_told_a", "sweep_told_b")] == ["FAILED", "FAILED"]
    assert not tracker.runs(["sweep_untold"], kind="sweep")


def test_a_folder_of_the_sweep_s_own_choosing_is_found(tracker: Tracker, outputs: Any, tmp_path: Path) -> None:
    folder, _ = begun(outputs, "sweep_elsewhere", number=0)
    write_json(folder / "sweep.json", {"sweep": "mine", "overrides": "seed=0,1", "folder": str(tmp_path / "mine")})
    write_state(tmp_path / "mine", SweepState(state="stopped"))
    carry(folder, tracker)
    (parent,) = tracker.runs(["sweep_elsewhere"], kind="sweep")
    assert (parent.status, parent.params) == ("KILLED", {"overrides": "seed=0,1"})


def test_nothing_of_an_earlier_sweep_in_the_same_folder_is_taken_for_its_own(outputs: Any) -> None:
    sweep = folder_of(outputs)
    _, job = begun(outputs, "sweep_before", number=0)
    (sweep / STOP).touch()
    (sweep / "0" / "log.txt").write_text("what it said\n")
    close_sweep(sweep, "stopped", [job])
    open_sweep(sweep)
    assert not (sweep / STOP).exists()
    assert (read_job(sweep / "0"), run_folder(sweep / "0", job)) == (None, None)
    assert sorted(path.name for path in sweep.rglob("*") if path.is_file()) == ["log.txt", STATE]

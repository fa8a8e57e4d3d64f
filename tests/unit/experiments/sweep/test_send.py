"""A sweep's table and pictures in MLflow: sent at its end, sent later where nobody answered, never in its way."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from experiments.sweep.job import Job
from experiments.sweep.send import send_aside, send_sweeps
from experiments.track import Tracker, main
from experiments.tracking.carry import Carrier
from tests.ports import free_port

SWEEP = "2026-02-02T00-00-00"
FILES = ["reward.temperature.png", "summary.csv"]


def swept(outputs: Any, name: str, *, mirror: bool = True) -> tuple[Path, list[Job]]:
    """The folder of a sweep of two jobs, one of which was done already before it."""
    sweep: Path = outputs.root / "sweeps" / SWEEP
    jobs = []
    for seed, of in enumerate((SWEEP, "2026-01-01T00-00-00")):
        run = outputs.run(name, seed=seed, final=0.4, sweep=of)
        with (run / "config.yaml").open("a") as file:
            file.write(f"logger:\n  mirror: {str(mirror).lower()}\n  patience: 20\n")
        jobs.append(Job(number=seed, overrides=(f"seed={seed}",), state="done", run=str(run)))
    sweep.mkdir(parents=True)
    for file in FILES:
        (sweep / file).write_text("drawn")
    return sweep, jobs


def sent(tracker: Tracker, name: str) -> dict[str, list[str]]:
    """Sweep → what its run has."""
    return {run.tags["sweep"]: tracker.artifacts.files(run.run_id) for run in tracker.runs([name], kind="sweep")}


def test_a_sweep_sends_what_it_drew_to_its_own_run(outputs: Any, tracker: Tracker) -> None:
    sweep, jobs = swept(outputs, "sends_itself")
    assert send_aside(sweep, jobs) == []
    assert sent(tracker, "sends_itself") == {SWEEP: [*FILES, "sweep.json"]}, "not to that of the job done before"


def test_a_sweep_in_a_folder_of_ones_own_sends_what_it_drew(outputs: Any, tracker: Tracker, tmp_path: Path) -> None:
    """As by ``hydra.sweep.dir=…/mine``, which the jobs' sweep.json names."""
    sweep = tmp_path / "mine"
    run = outputs.run("sweeps_elsewhere", seed=0, final=0.4, sweep="mine")
    (run / "sweep.json").write_text(json.dumps({"sweep": "mine", "overrides": "seed=0", "folder": str(sweep)}))
    with (run / "config.yaml").open("a") as file:
        file.write("logger:\n  mirror: true\n  patience: 20\n")
    sweep.mkdir()
    for file in FILES:
        (sweep / file).write_text("drawn")
    assert send_aside(sweep, [Job(number=0, overrides=("seed=0",), state="done", run=str(run))]) == []
    assert sent(tracker, "sweeps_elsewhere") == {"mine": [*FILES, "sweep.json"]}


def test_a_dead_tracker_costs_a_line_and_sync_sends_the_rest(
    outputs: Any, tracker: Tracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep, jobs = swept(outputs, "dead_meanwhile")
    with monkeypatch.context() as dead:
        dead.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{free_port()}")
        (line,) = send_aside(sweep, jobs)
    command = line.partition("python ")[2].split()
    assert line.startswith("MLflow has not all of the sweep yet; to send the rest: python -m experiments.track ")
    assert sent(tracker, "dead_meanwhile") == {}
    assert main(command[2:]) == 0
    assert sent(tracker, "dead_meanwhile") == {SWEEP: [*FILES, "sweep.json"]}


def test_a_slow_tracker_is_waited_for_no_longer_than_granted(outputs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep, jobs = swept(outputs, "slow")
    monkeypatch.setattr("experiments.sweep.send.START_SECONDS", -19.5)
    began = time.monotonic()
    assert len(send_aside(sweep, jobs)) == 1
    assert time.monotonic() - began < 15


def test_jobs_that_log_to_their_folders_alone_ask_no_tracker(outputs: Any) -> None:
    sweep, jobs = swept(outputs, "folders_alone", mirror=False)
    assert send_aside(sweep, jobs) == []
    assert not (sweep / "mirror.log").exists()


def test_nothing_is_sent_twice_and_what_was_drawn_anew_is_sent_again(outputs: Any, tracker: Tracker) -> None:
    sweep, _ = swept(outputs, "again")
    for folder in outputs.root.glob("runs/again/*"):
        Carrier(folder, tracker).carry(live=False)
    assert send_sweeps([outputs.root], lambda: tracker)
    (run,) = (run for run in tracker.runs(["again"], kind="sweep") if run.tags["sweep"] == SWEEP)
    (sweep / FILES[0]).write_text("drawn anew")
    there = next(Path(tracker.address.removeprefix("sqlite:///")).parent.glob(f"artifacts/*/{run.run_id}/artifacts"))
    (there / FILES[1]).write_text("a mark")
    assert send_sweeps([outputs.root / "runs" / "again"], lambda: tracker)
    assert [(there / file).read_text() for file in FILES] == ["drawn anew", "a mark"]


def test_before_its_jobs_a_sweep_is_not_sent(outputs: Any, tracker: Tracker) -> None:
    swept(outputs, "jobs_first")
    assert not send_sweeps([outputs.root], lambda: tracker)
    assert sent(tracker, "jobs_first") == {}


def test_a_mistake_of_ours_is_told_with_its_place_and_keeps_no_other_sweep(
    outputs: Any, tracker: Tracker, capsys: pytest.CaptureFixture
) -> None:
    """A memory of another version's; a tracker that is dead has a line."""
    sweep, _ = swept(outputs, "mistaken_sweep")
    for folder in outputs.root.glob("runs/mistaken_sweep/*"):
        Carrier(folder, tracker).carry(live=False)
    (sweep / "mirror.json").write_text(json.dumps({tracker.address: {"mistaken_sweep": {"unknown": 1}}}))
    assert not send_sweeps([outputs.root], lambda: tracker)
    said = capsys.readouterr().out
    assert said.startswith(f"{sweep}: not all was sent (TypeError: ")
    assert "Traceback (most recent call last):" in said
    assert not send_sweeps([outputs.root], lambda: Tracker(f"http://127.0.0.1:{free_port()}"))
    assert [line.partition(" (")[0] for line in capsys.readouterr().out.splitlines()] == [f"{sweep}: not all was sent"]
    (sweep / "mirror.json").unlink()
    assert send_sweeps([outputs.root], lambda: tracker)


def test_a_run_folder_that_cannot_be_read_keeps_no_other_sweep(
    outputs: Any, tracker: Tracker, capsys: pytest.CaptureFixture
) -> None:
    sweeps = [f"2026-03-0{day}T00-00-00" for day in (1, 2)]
    for name, sweep in zip(("unreadable", "unreadable_s_neighbour"), sweeps, strict=True):
        run = outputs.run(name, seed=0, final=0.4, sweep=sweep)
        Carrier(run, tracker).carry(live=False)
        (folder := outputs.root / "sweeps" / sweep).mkdir(parents=True)
        (folder / "summary.csv").write_text("drawn")
    (outputs.root / "runs/unreadable" / "2026-01-01T00-00-00-0" / "failure.json").write_text("{}")
    assert not send_sweeps([outputs.root], lambda: tracker)
    said = capsys.readouterr().out
    assert said.startswith(f"{outputs.root / 'sweeps' / sweeps[0]}: not all was sent (TypeError: ")
    assert sent(tracker, "unreadable_s_neighbour") == {sweeps[1]: ["summary.csv", "sweep.json"]}

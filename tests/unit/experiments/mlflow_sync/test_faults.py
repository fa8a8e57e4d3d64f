"""A tracker that is dead, slow, responds with 500 or has a full disk: training goes on, missing data is sent once."""

from __future__ import annotations

import json
import re
import resource
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from experiments.config.hints import python_command
from experiments.mlflow_sync import Tracker, TrackerError
from experiments.mlflow_sync.describe import describe
from experiments.mlflow_sync.sync import LAST_PASSES, Passes, sync
from experiments.run_folder.mirror import LOG_FILE, missing_from_mlflow, start_sync, stop_sync, sync_apart
from experiments.track import main
from tests.ports import free_port
from tests.unit.experiments.mlflow_sync.server_kit import Door, Server

VAL = "val/verifier/accuracy_sampled"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    """Yields a proxy of a server that was never started; ``MLFLOW_TRACKING_URI`` is its address."""
    door = Door(Server(tmp_path))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", door.address)
    door.listen()
    yield door
    door.shut()


def grpo_of(folder: Path) -> Path:
    return next(run.folder for run in describe(folder) if run.tags.get("stage") == "grpo")


def history(tracker: Tracker, name: str, metric: str = VAL) -> list[tuple[int, float]]:
    (grpo,) = (run for run in tracker.runs([name], kind="stage") if run.tags["stage"] == "grpo")
    return tracker.history(grpo.run_id, metric)


def wait_until(condition: Callable[[], bool], message: Callable[[], str]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, message()
        time.sleep(0.1)


@pytest.mark.slow
def test_requests_executed_without_response_are_not_duplicated(door: Door, server: Server, outputs: Any) -> None:
    """The first request of each path is executed but gets 500: a run is created, and the client does not see it."""
    folder = outputs.run("forgotten", seed=0, final=0.4)
    door.server, door.mood = server, "forgetful"
    passes = Passes(folder, lambda: Tracker(door.address))
    failed = 0
    while not passes.once(live=False):
        failed += 1
        assert failed < 60
    door.mood = "open"
    tracker = Tracker(door.address)
    runs = [run for kind in ("experiment", "stage") for run in tracker.runs(["forgotten"], kind=kind)]
    assert sorted(run.tags.get("stage", "") for run in runs) == ["", "evaluate", "grpo"]
    assert {run.status for run in runs} == {"FINISHED"}
    (grpo,) = (run for run in runs if run.tags.get("stage") == "grpo")
    assert len(tracker._client.get_metric_history(grpo.run_id, VAL)) == 3
    assert failed > 5, "of searching, making, describing, sending and ending"


def test_stop_sync_waits_at_most_timeout_for_slow_tracker(door: Door, outputs: Any) -> None:
    folder = outputs.run("slow", seed=0, final=0.4)
    door.seconds = 30.0
    process = start_sync(folder)
    wait_until(lambda: door.requests > 0, (folder / LOG_FILE).read_text)
    begin = time.monotonic()
    assert not stop_sync(process, timeout=1.0)
    assert time.monotonic() - begin < 10, "an answer takes 30 s"


def test_sync_prints_500_once_and_stops_after_last_passes(
    door: Door, outputs: Any, capsys: pytest.CaptureFixture
) -> None:
    folder = outputs.run("always_500", seed=0, final=0.4)
    door.mood = "500"
    assert not sync([folder], lambda: Tracker(door.address))
    failed, summary = capsys.readouterr().out.splitlines()
    assert re.search(rf"not all was sent \(MLflow at {door.address}: .*500", failed)
    assert "0 of 1 run folders are in MLflow" in summary
    assert door.requests == LAST_PASSES


def test_every_tracker_method_raises_tracker_error_without_server(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address := f"http://me:opensesame@127.0.0.1:{port}")
    tracker = Tracker(address)
    calls: list[Callable[[], object]] = [
        lambda: tracker.find_run("nobody", "key"),
        lambda: tracker.create_run("nobody", name="run", start=0.0, tags={}, parent=None),
        lambda: tracker.describe("run", params={}, tags={"stage": "grpo"}),
        lambda: tracker.set_status("run", "FINISHED", end=1.0),
        lambda: tracker.runs(["nobody"], kind="stage"),
        lambda: tracker.history("run", VAL),
        lambda: tracker.table("run", "val/completions"),
    ]
    for call in calls:
        with pytest.raises(TrackerError, match=rf"http://127\.0\.0\.1:{port} [^\n]+ refused") as raised:
            call()
        assert "opensesame" not in str(raised.value)


def test_unforeseen_error_is_printed_once_with_traceback(
    tracker: Tracker, outputs: Any, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table file without a step causes a ValueError.

    Its traceback is printed once and without secrets, other folders are sent, and removing the file is enough.
    """
    monkeypatch.setenv("JUDGE_TOKEN", token := "sentinel-0123456789")
    folder = outputs.run("mistaken", seed=0, final=0.4)
    table = grpo_of(folder) / "tables" / "val" / f"{token}.json"
    table.parent.mkdir(parents=True)
    table.write_text("[]")
    passes = Passes(folder, lambda: tracker)
    assert not passes.once(live=True)
    assert not passes.once(live=True)
    output = capsys.readouterr().out
    assert output.startswith(f"{folder}: not all was sent (ValueError: ")
    assert output.count("Traceback (most recent call last):") == 1
    assert "in _send_tables" in output
    assert token not in output
    outputs.run("mistaken", seed=1, final=0.4)
    assert not sync([outputs.root], lambda: tracker)
    assert "1 of 2 run folders are in MLflow" in capsys.readouterr().out
    table.unlink()
    assert passes.once(live=False)
    assert capsys.readouterr().out == ""


@pytest.mark.slow
def test_tracker_waits_half_a_minute_for_response(door: Door, server: Server) -> None:
    """This is the timeout of the sync, which must send everything even to a slow tracker."""
    door.server, door.seconds = server, 30.0
    assert Tracker(door.address).experiments() is not None
    assert door.requests == 1


@pytest.mark.slow
def test_sync_resumes_after_full_disk(tracker: Tracker, outputs: Any) -> None:
    """The sync process may write no file beyond the current size of the database."""
    folder = outputs.run("disk_full", seed=0, final=0.4)
    (folder / "summary.json").unlink()
    process = start_sync(folder)
    log = folder / LOG_FILE
    wait_until(lambda: len(tracker.runs(["disk_full"], kind="stage")) == 2, log.read_text)
    database = Path(tracker.address.removeprefix("sqlite:///"))
    _, hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (database.stat().st_size, hard))
    outputs.log(grpo_of(folder), "train/long", {step: step / 7 for step in range(2500)})
    wait_until(lambda: "not all was sent" in log.read_text(), log.read_text)
    assert "full" in log.read_text() or "disk" in log.read_text()
    assert process.poll() is None, "it goes on trying"
    (folder / "summary.json").write_text("{}")
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (hard, hard))
    assert stop_sync(process, timeout=120), log.read_text()
    assert history(tracker, "disk_full", "train/long") == [(step, step / 7) for step in range(2500)]


def test_next_pass_sends_what_failed_pass_did_not(
    tracker: Tracker, outputs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_error(*_: Any) -> None:
        raise TrackerError("disk full")

    passes = Passes(outputs.run("retried", seed=0, final=0.4), lambda: tracker)
    with monkeypatch.context() as patch:
        patch.setattr(tracker, "log_file", raise_error)
        assert not passes.once(live=False)
    assert passes.once(live=False)
    (run,) = tracker.runs(["retried"], kind="experiment")
    assert {"choices.json", "config.yaml"} <= set(tracker.artifacts.files(run.run_id))


@pytest.mark.slow
def test_sync_sends_missing_data_once_after_server_was_killed(
    outputs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """The server is killed during a sync, and the run ends. ``sync`` sends the rest; a second call sends nothing."""
    server = Server(tmp_path)
    server.start()
    door = Door(server)
    door.listen()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", door.address)
    folder = outputs.run("killed", seed=0, final=0.4)
    (folder / "summary.json").unlink()
    process = start_sync(folder)
    wait_until(lambda: (VAL, 20) in {(name, step) for _, name, step in door.points}, (folder / LOG_FILE).read_text)
    server.kill()
    outputs.log(grpo_of(folder), VAL, {step: step / 100 for step in range(30, 2030, 10)})
    (folder / "summary.json").write_text("{}")
    assert not stop_sync(process, timeout=60)
    written = (grpo_of(folder) / "metrics.jsonl").read_text()
    assert [json.loads(line)["step"] for line in written.splitlines()] == [0, 10, *range(20, 2030, 10)]
    server.start()
    door.points.clear()
    assert main([str(outputs.root)]) == 0
    grpo = {run for run, name, step in door.points if name == VAL and step > 30}
    assert [step for run, name, step in door.points if run in grpo and name == VAL] == list(range(30, 2030, 10))
    assert [step for step, _ in history(Tracker(door.address), "killed")] == list(range(0, 2030, 10))
    door.points.clear()
    assert main([str(outputs.root)]) == 0
    assert not [point for point in door.points if point[0] in grpo]
    assert "1 of 1 run folders are in MLflow" in capsys.readouterr().out
    door.shut()
    server.kill()


def test_unreachable_tracker_is_reported_once_for_many_folders(
    outputs: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    for seed in range(2):
        outputs.run("nobody", seed=seed, final=0.4)
    address = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    assert main([str(outputs.root)]) == 2
    assert re.fullmatch(f"MLflow at {address} .*refused.*\n", capsys.readouterr().err)


def test_start_sync_does_not_wait_for_dead_server(outputs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process starts at once, fails in seconds, logs the reason, and ends when it is stopped."""
    address = f"127.0.0.1:{free_port()}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://me:opensesame@{address}")
    folder = outputs.run("nobody_home", seed=0, final=0.4)
    process = start_sync(folder)
    assert process.poll() is None, "it was waited for"
    assert not stop_sync(process, timeout=120)
    assert process.returncode == 1
    log = (folder / LOG_FILE).read_text()
    assert "not all was sent" in log
    assert "opensesame" not in log
    assert missing_from_mlflow([folder], folder / LOG_FILE) == (
        f"MLflow does not have everything yet; to send the rest: {python_command()} -m experiments.track {folder}\n"
        f"  MLflow at http://{address} does not answer ([Errno 111] Connection refused)"
    )


def test_sync_process_ends_with_its_parent_process(tracker: Tracker, outputs: Any) -> None:
    folder = outputs.run("orphan", seed=0, final=0.4)
    (folder / "summary.json").unlink()
    start = f"from experiments.run_folder.mirror import start_sync; start_sync(pathlib.Path({str(folder)!r}))"
    code = f"import os, pathlib; {start}; os._exit(9)"
    subprocess.run([sys.executable, "-c", code], check=False)
    wait_until(
        lambda: [run.status for run in tracker.runs(["orphan"], kind="experiment")] == ["KILLED"],
        (folder / LOG_FILE).read_text,
    )


def test_sync_apart_stops_at_timeout_and_command_for_rest_is_quoted(outputs: Any, tmp_path: Path) -> None:
    began = time.monotonic()
    assert not sync_apart([outputs.run("late", seed=0, final=0.4)], tmp_path / "log", timeout=0.5)
    assert time.monotonic() - began < 15
    folder = tmp_path / "a b; c"
    command = missing_from_mlflow([folder], tmp_path / "no log").splitlines()[0].partition("rest: ")[2]
    assert shlex.split(command) == [*shlex.split(python_command()), "-m", "experiments.track", str(folder)]

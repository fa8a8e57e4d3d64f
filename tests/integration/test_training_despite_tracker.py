"""Runs with a tracker that is dead, slow, full, killed, damaged or returns 500 log the same as without one."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from experiments.config.hints import python_command
from experiments.mlflow_sync import Tracker
from experiments.run_folder.reader import read_metrics
from experiments.track import main
from tests.unit.experiments.mlflow_sync.server_kit import Door, Server

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["experiment=grpo_laptop", "debug=fast", "stages=[grpo]", "policy.pretrained=embedded:llama_arithmetic"]
COSTS = ("system/", "train/throughput/", "train/spent/seconds")
"""Metrics that differ from run to run: seconds and memory."""
DISK = "1100k"
"""MLflow's empty tables take 932 kB."""
pytestmark = pytest.mark.slow


def run(folder: Path, address: str, *overrides: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "experiments.run", *SMALL, *overrides],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "MLFLOW_TRACKING_URI": address},
        capture_output=True,
        text=True,
    )


def numbers(folder: Path) -> dict[tuple[str, int], float]:
    """The metrics of the run's GRPO stage, except its costs."""
    (stage,) = (folder / "outputs" / "stages" / "grpo").iterdir()
    return {(m.name, m.step): m.value for m in read_metrics(stage) if not m.name.startswith(COSTS)}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], float]:
    """The metrics of a run without a tracker."""
    folder = tmp_path_factory.mktemp("alone")
    assert run(folder, "", "logger.mirror=false").returncode == 0
    found = numbers(folder)
    assert {name for name, _ in found} >= {"train/reward/verifier", "val/verifier/accuracy", "train/objective/loss"}
    return found


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    (tmp_path / "server").mkdir()
    door = Door(Server(tmp_path / "server"))
    yield door
    door.shut()
    door.server.kill()


@pytest.mark.parametrize("fault", ["dead", "slow", "500", "damaged"])
def test_run_with_faulty_tracker_logs_same_metrics_as_without(
    fault: str, door: Door, tmp_path: Path, expected: dict[tuple[str, int], float]
) -> None:
    if fault in ("slow", "500"):
        door.listen()
    door.mood = "500"
    door.seconds = 30.0 if fault == "slow" else 0.0
    (tmp_path / "damaged.db").write_bytes(b"this is no database, but long enough to be looked at" * 100)
    address = f"sqlite:///{tmp_path}/damaged.db" if fault == "damaged" else door.address
    done = run(tmp_path, address, "logger.patience=1")
    assert done.returncode == 0, done.stderr
    assert (
        f"MLflow does not have everything yet; to send the rest: {python_command()} -m experiments.track" in done.stdout
    )
    assert numbers(tmp_path) == expected
    assert fault in ("dead", "damaged") or door.requests > 0


def test_tracker_killed_in_training_gets_all_metrics_afterwards(
    door: Door, tmp_path: Path, expected: dict[tuple[str, int], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    door.server.start()
    door.listen()
    killer = threading.Thread(target=kill_once_it_is_used, args=(door,))
    killer.start()
    done = run(tmp_path, door.address, "logger.patience=1")
    killer.join()
    assert done.returncode == 0, done.stderr
    assert "MLflow does not have everything yet" in done.stdout, "it was killed in the middle"
    assert numbers(tmp_path) == expected
    door.server.start()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", door.address)
    assert main([str(tmp_path / "outputs")]) == 0
    assert sent_numbers(Tracker(door.address), expected) == expected


def sent_numbers(tracker: Tracker, names: Iterable[tuple[str, int]]) -> dict[tuple[str, int], float]:
    """The values of these metrics in the tracker."""
    stages = [stage for stage in tracker.runs(["grpo_laptop"], kind="stage") if stage.tags["stage"] == "grpo"]
    return {
        (name, step): value
        for stage in stages
        for name in {name for name, _ in names}
        for step, value in tracker.history(stage.run_id, name)
    }


SMALL_DISK = """
mount -t tmpfs -o size={size} none disk || exit 77
"$0" -m experiments.run "$@"
ended=$?
df --output=avail -k disk | tail -1 > left.txt
cp disk/mlflow.db kept.db
exit $ended
"""
NO_NAMESPACE = 77


def test_tracker_with_full_disk_gets_all_metrics_afterwards(
    tmp_path: Path, expected: dict[tuple[str, int], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tracker has its own disk with space for the tables and little more."""
    (tmp_path / "disk").mkdir()
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", SMALL_DISK.format(size=DISK), sys.executable, *SMALL, "logger.patience=1"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/disk/mlflow.db"},
        capture_output=True,
        text=True,
    )
    if "unshare" in done.stderr or done.returncode == NO_NAMESPACE:
        pytest.skip("this system lets nobody make a disk of their own")
    assert done.returncode == 0, done.stderr
    assert (
        f"MLflow does not have everything yet; to send the rest: {python_command()} -m experiments.track" in done.stdout
    )
    assert int((tmp_path / "left.txt").read_text()) < 64, "it was full"
    assert numbers(tmp_path) == expected
    address = f"sqlite:///{tmp_path}/kept.db"
    assert sent_numbers(Tracker(address), expected) != expected
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    assert main([str(tmp_path / "outputs")]) == 0
    assert sent_numbers(Tracker(address), expected) == expected


def kill_once_it_is_used(door: Door) -> None:
    until = time.monotonic() + 300
    while door.requests < 5 and time.monotonic() < until:
        time.sleep(0.02)
    door.server.kill()

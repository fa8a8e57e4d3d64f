"""MLflow's store: its address, its SQLite file, and the errors if it cannot be used."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from experiments.mlflow_sync import Tracker, TrackerError, connect, tracking_address
from experiments.mlflow_sync.store import OURS, TIMEOUT, database_file, open_client
from experiments.mlflow_sync.sync import FolderSync
from tests.ports import free_port

CONNECT = [sys.executable, "-c", "from experiments.mlflow_sync import connect; connect()"]
SECONDS = 30.0
"""Time limit for an error that needs no network, including the import of MLflow."""


def test_open_client_replaces_inherited_timeout_but_not_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that a command starts inherits its environment, but needs its own timeout."""
    for name in (TIMEOUT, OURS):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    for seconds in (10, 60):
        open_client("http://127.0.0.1:9", seconds=seconds)
        assert os.environ[TIMEOUT] == str(seconds)
    monkeypatch.setenv(TIMEOUT, "33")
    open_client("http://127.0.0.1:9", seconds=10)
    assert os.environ[TIMEOUT] == "33", "the user's own"


def test_database_is_created_in_folder_of_any_name(
    outputs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else is created: no file whose name is cut at a special character, no folder with a quoted name."""
    (folder := tmp_path / "it's w4?q 100%20 a%3Fc #日本").mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    run = outputs.run("anywhere", seed=0, final=0.4)
    FolderSync(run, tracker := connect()).send(live=False)
    (experiment,) = tracker.runs(["anywhere"], kind="experiment")
    assert "config.yaml" in tracker.artifacts.files(experiment.run_id)
    assert b"seed: 0" in tracker.artifacts.read(experiment.run_id, "config.yaml")
    assert database_file(tracking_address()) == folder / "mlruns" / "mlflow.db"
    assert {path.name for path in tmp_path.iterdir()} == {"outputs", folder.name}
    assert {path.name for path in folder.iterdir()} == {"mlruns"}


@pytest.mark.parametrize(
    ("address", "file"),
    [
        ("sqlite:////a/b%20c/m%3F.db?timeout=5", "/a/b c/m?.db"),
        ("sqlite:///:memory:", None),
        ("sqlite://", None),
        ("http://127.0.0.1:5000", None),
    ],
)
def test_database_file_unquotes_address_once(address: str, file: str | None) -> None:
    assert database_file(address) == (file and Path(file))


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Yields the port of a server that accepts connections and never responds."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("nonsense://me:opensesame@x", r"nonsense://x .+ URI"),
        ("http://me:opensesame@127.0.0.1:{free}", "http://127.0.0.1:{free} .*refused"),
        ("http://127.0.0.1:{silent}", "http://127.0.0.1:{silent} .*timed out"),
        ("sqlite:////proc/nothing/mlflow.db", "sqlite:////proc/nothing/mlflow.db"),
        ("sqlite:///{folder}", "sqlite:///{folder} .*(directory|unable to open)"),
        ("sqlite:///{damaged}", "sqlite:///{damaged} .*not a database"),
        ("postgresql://me:opensesame@127.0.0.1:{free}/x", "postgresql://127.0.0.1:{free}/x "),
    ],
)
def test_unusable_store_raises_tracker_error_within_seconds(
    address: str, reason: str, silent_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (damaged := tmp_path / "damaged.db").write_bytes(b"this is no database, but long enough to be looked at" * 100)
    (folder := tmp_path / "folder").mkdir()
    places = {"free": free_port(), "silent": silent_port, "damaged": damaged, "folder": folder}
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address.format(**places))
    monkeypatch.setattr("experiments.mlflow_sync.tracker.READER_SECONDS", 2)
    began = time.monotonic()
    with pytest.raises(TrackerError, match=reason.format(**places)) as raised:
        connect().experiments()
    assert time.monotonic() - began < SECONDS
    assert "\n" not in str(raised.value)
    assert "opensesame" not in str(raised.value)


def test_two_processes_can_create_database_at_once(tmp_path: Path) -> None:
    environment = os.environ | {"MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path / 'new' / 'mlflow.db'}"}
    both = [subprocess.Popen(CONNECT, env=environment) for _ in range(2)]
    assert [process.wait(120) for process in both] == [0, 0]


def test_empty_file_becomes_database_and_symlink_is_kept(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").symlink_to(tmp_path / "big" / "real.db")
    (tmp_path / "big").mkdir()
    (tmp_path / "big" / "real.db").touch()
    assert Tracker(f"sqlite:///{tmp_path / 'mlflow.db'}").experiments() == []
    assert (tmp_path / "mlflow.db").is_symlink()
    assert [path.name for path in (tmp_path / "big").iterdir()] == ["real.db"]


def test_process_killed_during_creation_leaves_no_broken_database(tmp_path: Path) -> None:
    database = tmp_path / "mlflow.db"
    environment = os.environ | {"MLFLOW_TRACKING_URI": f"sqlite:///{database}"}
    maker = subprocess.Popen(CONNECT, env=environment)
    while not _has_begun(tmp_path):
        assert maker.poll() is None
        time.sleep(0.01)
    maker.kill()
    assert maker.wait() == -signal.SIGKILL
    assert [path.name for path in tmp_path.glob("mlflow.db*")] != []
    assert not database.exists()
    assert Tracker(f"sqlite:///{database}").experiments() == []
    assert [path.name for path in tmp_path.glob("mlflow.db*")] == ["mlflow.db"]


def _has_begun(folder: Path) -> bool:
    """Returns whether the creation of tables has begun; a journal can vanish before its size is read."""
    with contextlib.suppress(FileNotFoundError):
        return any(path.stat().st_size for path in folder.glob("mlflow.db*"))
    return False


def test_run_files_are_read_as_utf8_in_any_locale(tmp_path: Path, outputs: Any) -> None:
    run = outputs.run("locale", seed=0, final=0.4)
    stages = json.loads((run / "stages.json").read_text(encoding="utf-8"))
    table = Path(stages["evaluate"]["folder"]) / "tables" / "texts" / "0.json"
    table.parent.mkdir(parents=True)
    table.write_text('[{"text": "7·6=42 ✓"}]', encoding="utf-8")
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "utf-8"}
    environment = os.environ | {"MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path / 'mlflow.db'}"} | locale
    command = [sys.executable, "-m", "experiments.track", str(outputs.root)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stdout + done.stderr
    tracker = Tracker(f"sqlite:///{tmp_path / 'mlflow.db'}")
    (evaluate,) = (one for one in tracker.runs(["locale"], kind="stage") if one.tags["stage"] == "evaluate")
    assert tracker.table(evaluate.run_id, "texts") == [{"step": 0, "text": "7·6=42 ✓"}]

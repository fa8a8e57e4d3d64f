"""The process that sends a run's records while it trains: to a server, to none, and to its end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Any

import pytest

from experiments.track import Tracker
from experiments.tracking.mirror import LOG_FILE, start_mirror, stop_mirror
from tests.ports import free_port

TEST = "test/verifier/accuracy_sampled"


def test_a_mirror_sends_everything_before_it_is_stopped(tracker: Tracker, outputs: Any) -> None:
    folder = outputs.run("mirrored", seed=0, final=0.4)
    process = start_mirror(folder)
    assert stop_mirror(process, timeout=120), (folder / LOG_FILE).read_text()
    (run,) = tracker.runs(["mirrored"], kind="experiment")
    assert (run.status, run.metrics[TEST]) == ("FINISHED", 0.4)


def test_a_dead_server_costs_training_nothing(outputs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mirror starts at once, fails in seconds, says so in its log, and ends with its parent's wish."""
    address = f"127.0.0.1:{free_port()}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://me:opensesame@{address}")
    folder = outputs.run("nobody_home", seed=0, final=0.4)
    process = start_mirror(folder)
    assert process.poll() is None, "it was waited for"
    assert not stop_mirror(process, timeout=120)
    assert process.returncode == 1
    log = (folder / LOG_FILE).read_text()
    assert "not all was sent" in log
    assert "opensesame" not in log, "what is tried is said without its login"


def test_a_mirror_ends_with_the_process_that_started_it(tracker: Tracker, outputs: Any) -> None:
    folder = outputs.run("orphan", seed=0, final=0.4)
    (folder / "summary.json").unlink()
    code = (
        f"import os; from experiments.tracking.mirror import start_mirror; start_mirror({str(folder)!r}); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", code], check=False, env=os.environ)
    deadline = time.monotonic() + 120
    while not (found := tracker.runs(["orphan"], kind="experiment")) or found[0].status != "KILLED":
        assert time.monotonic() < deadline, (folder / LOG_FILE).read_text()
        time.sleep(0.2)

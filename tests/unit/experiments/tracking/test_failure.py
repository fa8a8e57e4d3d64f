"""A run that failed says so itself, and shows as FAILED in MLflow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from experiments.track import Tracker
from experiments.tracking.carry import Carrier
from experiments.tracking.failure import write_failure
from experiments.tracking.run_tree import runs_of


def test_a_run_that_failed_is_no_killed_one(tracker: Tracker, outputs: Any) -> None:
    """Nor are the stages before the one that it failed in."""
    folder = outputs.run("failed", seed=0, final=0.4)
    (folder / "summary.json").unlink()
    stages = {run.tags["stage"]: run.folder for run in runs_of(folder) if run.kind == "stage"}
    (stages["evaluate"] / "result.json").unlink()
    write_failure(folder, ValueError("no number\nat all"))
    write_failure(folder, ConnectionError("what the other ranks say then"))
    assert json.loads((folder / "failure.json").read_text())["cause"] == "ValueError: no number"
    Carrier(folder, tracker).carry(live=False)
    assert [run.status for run in tracker.runs(["failed"], kind="experiment")] == ["FAILED"]
    ends = {run.tags["stage"]: run.status for run in tracker.runs(["failed"], kind="stage")}
    assert ends == {"grpo": "FINISHED", "evaluate": "FAILED"}


def test_that_a_run_failed_is_left_unsaid_where_nothing_can_be_written(tmp_path: Path) -> None:
    """Not in place of what it failed of."""
    (tmp_path / "file").touch()
    write_failure(tmp_path / "file" / "below", ValueError("no number"))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert not (tmp_path / "file").read_bytes()

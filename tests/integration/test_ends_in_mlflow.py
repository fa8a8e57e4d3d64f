"""MLflow's status of runs that raised, were stopped or were killed; test_run.py has that of finished ones."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from experiments.mlflow_sync import TrackedRun, Tracker
from experiments.system.launch import FAILED, INTERRUPTED
from tests.forking import SHORT, Forks
from tests.killing import runs

OURS = ["experiment=llama_baseline", "debug=fast", *SHORT, "stages=[grpo]", "logger.patience=120"]
MODULE = """
class Broken:
    part = "broken"

    def __init__(self, **parts):
        pass

    def __call__(self, rollouts):
        raise ConnectionError("the judge has left")

def fails(problem, completion):
    raise ConnectionError("the judge has left")
"""
RAISES = ["reward._target_=judges.Broken"]
REFUSES = ["reward=function", "reward.function._target_=judges.fails"]
ENDS: dict[str, tuple[list[str], dict[str, Any], int, str]] = {
    "an exception": (RAISES, {}, FAILED, "FAILED"),
    "an end with a sentence": (REFUSES, {}, FAILED, "FAILED"),
    "SIGTERM": ([], {"place": "rollout", "step": 2, "signals": [signal.SIGTERM]}, INTERRUPTED, "KILLED"),
    "SIGKILL": ([], {"place": "rollout", "step": 2}, -signal.SIGKILL, "KILLED"),
}
"""Overrides, place and signals of the kill, exit code, status in MLflow."""
PATIENCE = 120.0
pytestmark = pytest.mark.whole


@pytest.fixture(scope="module")
def tracker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tracker]:
    with pytest.MonkeyPatch.context() as patch:
        address = f"sqlite:///{tmp_path_factory.mktemp('mlruns') / 'mlflow.db'}"
        patch.setenv("MLFLOW_TRACKING_URI", address)
        yield Tracker(address)


@pytest.fixture(scope="module")
def run(tracker: Tracker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    folder = tmp_path_factory.mktemp("judges")
    (folder / "judges.py").write_text(MODULE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.setenv("PYTHONPATH", str(folder), prepend=":")
        with runs(OURS, folder / "log") as started:
            yield started


@pytest.mark.parametrize("end", ENDS)
def test_mlflow_status_matches_end_of_run(run: Forks, tracker: Tracker, tmp_path: Path, end: str) -> None:
    overrides, kill, code, status = ENDS[end]
    name = end.replace(" ", "_")
    assert run(*OURS, *overrides, f"name={name}", f"output_dir={tmp_path}", **kill) == code, run.log.read_text()
    (experiment,), (stage,) = (finished_runs(tracker, name, kind) for kind in ("experiment", "stage"))
    assert (experiment.status, stage.status) == (status, status)
    files = tracker.artifacts.files(experiment.run_id)
    assert ("failure.json" in files) == (status == "FAILED")
    if status == "FAILED":
        failure = json.loads(tracker.artifacts.read(experiment.run_id, "failure.json"))
        assert "the judge has left" in failure["cause"]
        ended = [tracker._client.get_run(one.run_id).info.end_time for one in (experiment, stage)]
        assert ended == [round(1000 * failure["ended"])] * 2


def finished_runs(tracker: Tracker, name: str, kind: str) -> list[TrackedRun]:
    """The runs of that kind, once the MLflow sync has ended, which outlives a killed run."""
    deadline = time.monotonic() + PATIENCE
    while not (found := tracker.runs([name], kind=kind)) or any(one.status == "RUNNING" for one in found):
        assert time.monotonic() < deadline
        time.sleep(0.5)
    return found

"""A run is killed together with its MLflow sync. In the end MLflow has every metric of the folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient

from tests.integration.test_killed_ranks import PATIENCE, wait_for_step
from tests.integration.test_kills import numbers, stage

OURS = ["experiment=llama_baseline", "debug=fast", "stages=[grpo]", "budget.grpo.steps=6", "logger.patience=120"]


def sync_process_of(run: int) -> int:
    children = Path(f"/proc/{run}/task/{run}/children").read_text().split()
    (sync,) = (child for child in children if "experiments.track" in Path(f"/proc/{child}/cmdline").read_text())
    return int(sync)


@pytest.mark.slow
def test_mlflow_has_every_metric_after_run_and_sync_were_killed(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path / 'mlflow.db'}"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MLFLOW_TRACKING_URI": database}
    command = [sys.executable, "-m", "experiments.run", *OURS, f"output_dir={tmp_path}"]
    run = subprocess.Popen(command, env=environment)
    wait_for_step(tmp_path, 3, run)
    for process in (sync_process_of(run.pid), run.pid):
        os.kill(process, signal.SIGKILL)
    assert run.wait() == -signal.SIGKILL
    subprocess.run(command, env=environment, check=True, timeout=PATIENCE)
    subprocess.run([sys.executable, "-m", "experiments.track", str(tmp_path / "runs")], env=environment, check=True)

    client = MlflowClient(tracking_uri=database)
    found = client.search_runs([one.experiment_id for one in client.search_experiments()])
    ends = sorted((one.data.tags["kind"], one.info.status) for one in found)
    assert ends == [("experiment", "FINISHED"), ("experiment", "KILLED"), ("stage", "FINISHED"), ("stage", "FINISHED")]
    expected = numbers(stage(tmp_path, "grpo"))
    for one in (one for one in found if one.data.tags["kind"] == "stage"):
        synced = {
            (name, point.step): point.value
            for name in {name for name, _ in expected}
            for point in client.get_metric_history(one.info.run_id, name)
        }
        assert synced == expected

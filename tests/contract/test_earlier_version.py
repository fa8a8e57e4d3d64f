"""Files of an earlier version of this project can still be read: run folders, critics, MLflow's database.

The version of November 2026 wrote ``data/earlier_version.tar.xz``. It contains a run of ``llama_critic_calibrated``
with a policy of a few thousand parameters (``outputs/``, without pictures) and its MLflow data (``mlruns/``). It also
contains critics of several classes with their values (``critics/``).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import mlflow
import pytest
import torch

from contrastive_reasoning.tasks.countdown import CountdownProblem, parse_steps
from experiments.sample.completions import trained_critic
from tests.config_kit import composed

ROOT = Path(__file__).resolve().parents[2]
ARCHIVE = Path(__file__).parent / "data" / "earlier_version.tar.xz"
NAME = "llama_critic_calibrated"
STAGES = ["warm_start", "critic", "grpo", "evaluate"]
CRITICS = ["joint", "joint_ensemble", "numeric_v1", "numeric_v2", "text_frozen"]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked archive, which tests must not change."""
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture
def saved(unpacked: Path, tmp_path: Path) -> Path:
    """A copy of the archive that a command may change."""
    return shutil.copytree(unpacked, tmp_path, dirs_exist_ok=True)


def run(module: str, *words: str, folder: Path, store: str = "sqlite:///mlruns/mlflow.db") -> str:
    """Runs a command in ``folder`` and returns its output. Asserts that it succeeds."""
    environment = dict(os.environ, PYTHONPATH=str(ROOT), MLFLOW_TRACKING_URI=store, HF_HUB_OFFLINE="1", COLUMNS="200")
    command = [sys.executable, "-m", module, *words]
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.parametrize("name", CRITICS)
def test_saved_critic_gives_recorded_values(unpacked: Path, name: str) -> None:
    expected = json.loads((unpacked / "critics" / "values.json").read_text(encoding="utf-8"))[name]
    critic = trained_critic(unpacked / "critics" / name, composed(f"experiment={NAME}")).critic.eval()
    problem, completion = CountdownProblem(numbers=(3, 5, 8), target=16), "3+5=8;8+8=16"
    with torch.no_grad():
        values = critic.pairs(*critic.encode_steps(problem, completion, parse_steps(problem, completion)))
    torch.testing.assert_close(values.float().cpu(), torch.tensor(expected), rtol=1e-3, atol=1e-3)


def test_compare_reads_mlflow_database(saved: Path) -> None:
    printed = run("experiments.compare", NAME, folder=saved)
    (row,) = (line for line in printed.splitlines() if NAME in line and "│" in line)
    assert [cell.strip() for cell in row.strip("│ ").split("│")] == [NAME, "1", "0.000", "0.000", "7d0e2752"]


def test_track_syncs_run_folder_to_another_store(saved: Path) -> None:
    run("experiments.track", "outputs", folder=saved, store="sqlite:///other.db")
    mlflow.set_tracking_uri(f"sqlite:///{saved / 'other.db'}")
    try:
        found = mlflow.search_runs(experiment_names=[NAME], output_format="list")
    finally:
        mlflow.set_tracking_uri(None)
    assert sorted(one.data.tags.get("stage", "") for one in found) == sorted(["", *STAGES])
    critic = next(one for one in found if one.data.tags.get("stage") == "critic")
    assert critic.data.metrics["val/oracle/auprc"] == pytest.approx(0.1842, abs=1e-4)

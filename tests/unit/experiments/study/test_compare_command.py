"""The report's own command, in a process in which nothing has been set up before."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_a_study_without_runs_is_answered_in_a_sentence(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/mlflow.db"
    environment = {**os.environ, "MLFLOW_TRACKING_URI": address}
    command = [sys.executable, "-m", "experiments.compare", "countdown_credit"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2
    assert "No run of countdown_credit in MLflow" in done.stderr
    assert "Traceback" not in done.stderr

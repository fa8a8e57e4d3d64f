"""Run folders → MLflow, and runs read back. The folder is the truth; MLflow is a copy that can be made at any time."""

from experiments.mlflow_sync.store import TrackerError, tracking_address
from experiments.mlflow_sync.tracker import Artifacts, TrackedRun, Tracker, connect

__all__ = ["Artifacts", "TrackedRun", "Tracker", "TrackerError", "connect", "tracking_address"]

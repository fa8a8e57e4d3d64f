"""Copies run folders to MLflow and reads runs back. The folder is authoritative; the copy can be made at any time."""

from experiments.mlflow_sync.store import TrackerError, tracking_address
from experiments.mlflow_sync.tracker import Artifacts, TrackedRun, Tracker, connect

__all__ = ["Artifacts", "TrackedRun", "Tracker", "TrackerError", "connect", "tracking_address"]

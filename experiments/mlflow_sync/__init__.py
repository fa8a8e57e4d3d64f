"""Copies run folders to MLflow and reads runs back. The folder is authoritative; the copy can be made at any time."""

from experiments.mlflow_sync.store import TrackerError as TrackerError, tracking_address as tracking_address
from experiments.mlflow_sync.tracker import (
    Artifacts as Artifacts,
    TrackedRun as TrackedRun,
    Tracker as Tracker,
    connect as connect,
)

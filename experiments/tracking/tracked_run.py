from experiments.mlflow_sync.tracker import TrackedRun as TrackedRun

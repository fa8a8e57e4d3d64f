from experiments.mlflow_sync import Artifacts as Artifacts

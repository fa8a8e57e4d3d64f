from experiments.mlflow_sync.sync import LOG_FILE as LOG_FILE
from experiments.mlflow_sync.sync import start_sync as start_mirror
from experiments.mlflow_sync.sync import stop_sync as stop_mirror

__all__ = ["LOG_FILE", "start_mirror", "stop_mirror"]

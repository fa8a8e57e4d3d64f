from experiments.mlflow_sync.describe import OBSERVING as WATCHING
from experiments.mlflow_sync.describe import describe as runs_of
from experiments.run_folder.reader import find_run_folders, read_config, read_json, stage_folders

__all__ = ["WATCHING", "find_run_folders", "read_config", "read_json", "runs_of", "stage_folders"]

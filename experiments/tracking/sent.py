from experiments.mlflow_sync.sync import MEMORY_FILE as MEMORY_FILE

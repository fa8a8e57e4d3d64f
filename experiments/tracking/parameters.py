from experiments.mlflow_sync.describe import flatten as flatten

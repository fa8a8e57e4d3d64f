"""Old import paths of ``experiments.run_folder`` and ``experiments.mlflow_sync``."""

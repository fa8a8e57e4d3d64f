from experiments.mlflow_sync.sync import FolderSync
from experiments.mlflow_sync.sync import sync as sync


class Carrier(FolderSync):
    def carry(self, *, live: bool) -> None:
        self.send(live=live)

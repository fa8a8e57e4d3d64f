"""What the supervised data of warm starts share: an endless stream of batches, and its loaders."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import lightning as L
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from contrastive_reasoning.tasks.base import Split

Example = tuple[str, str]
"""A prompt and its completion."""


def as_drawn(batch: list[Example]) -> list[Example]:
    """Instead of the default conversion, which turns tuples into lists."""
    return batch


class ExampleStream(IterableDataset[list[Example]], ABC):
    """Batches first_step, first_step + 1, … without end, shared out over the workers; batch k depends on k alone."""

    first_step: int

    @abstractmethod
    def batch(self, step: int) -> list[Example]: ...

    def __iter__(self) -> Iterator[list[Example]]:
        worker = get_worker_info()
        offset, stride = (worker.id, worker.num_workers) if worker else (0, 1)
        step = self.first_step + offset
        while True:
            yield self.batch(step)
            step += stride


class ExampleData(L.LightningDataModule, ABC):
    """Training examples without end and a few fixed validation batches of the validation split."""

    def __init__(self, *, validation_batches: int, workers: int) -> None:
        super().__init__()
        self.validation_batches = validation_batches
        self.workers = workers

    @abstractmethod
    def stream(self, split: Split, *, first_step: int) -> ExampleStream:
        """The batches of a split; those of validation are as the training's last ones."""
        ...

    def train_dataloader(self) -> DataLoader[list[Example]]:
        first = self.trainer.global_step if self.trainer else 0
        stream = self.stream("train", first_step=first)
        return DataLoader(stream, batch_size=None, num_workers=self.workers, collate_fn=as_drawn)

    def val_dataloader(self) -> DataLoader[list[Example]]:
        stream = self.stream("validation", first_step=0)
        batches: Any = [stream.batch(step) for step in range(self.validation_batches)]
        return DataLoader(batches, batch_size=None, collate_fn=as_drawn)

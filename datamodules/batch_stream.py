"""An endless stream of batches, each a function of its number alone: resuming is starting at a number."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import lightning as L
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

BatchT = TypeVar("BatchT", covariant=True)


class BatchStream(IterableDataset[BatchT], Generic[BatchT]):
    """Batches number first, first + stride, … without end; loader workers take turns and keep that order.

    With R ranks, rank r of step k sees batch k·R + r.
    """

    def __init__(self, draw: Callable[[int], BatchT], *, first: int, stride: int) -> None:
        self.draw = draw
        self.first = first
        self.stride = stride

    def __iter__(self) -> Iterator[BatchT]:
        worker = get_worker_info()
        place, turns = (worker.id, worker.num_workers) if worker else (0, 1)
        number = self.first + place * self.stride
        while True:
            yield self.draw(number)
            number += turns * self.stride


def training_loader(draw: Callable[[int], BatchT], *, trainer: L.Trainer | None, workers: int) -> DataLoader[BatchT]:
    """The stream from where the trainer stands (one optimizer step a batch), for this rank."""
    step, rank, ranks = (trainer.global_step, trainer.global_rank, trainer.world_size) if trainer else (0, 0, 1)
    stream = BatchStream(draw, first=step * ranks + rank, stride=ranks)
    return DataLoader(stream, batch_size=None, num_workers=workers)

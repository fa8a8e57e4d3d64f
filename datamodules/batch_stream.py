"""An endless stream of batches, each a function of its number alone: resuming is starting at a number."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import lightning as L
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

BatchT = TypeVar("BatchT", covariant=True)


class BatchStream(IterableDataset[BatchT], Generic[BatchT]):
    """Batches number first, first + 1, … without end; loader workers take turns and keep that order."""

    def __init__(self, draw: Callable[[int], BatchT], *, first: int) -> None:
        self.draw = draw
        self.first = first

    def __iter__(self) -> Iterator[BatchT]:
        worker = get_worker_info()
        place, turns = (worker.id, worker.num_workers) if worker else (0, 1)
        number = self.first + place
        while True:
            yield self.draw(number)
            number += turns


def training_loader(draw: Callable[[int], BatchT], *, trainer: L.Trainer | None, workers: int) -> DataLoader[BatchT]:
    """The stream from where the trainer stands, one optimizer step a batch.

    Every rank draws the whole batch, which costs little beside a pass, and reads its own rows of it: what can be told
    of a pair, whether its goal was reached from there, is known of the pairs across ranks too.
    """
    stream = BatchStream(draw, first=trainer.global_step if trainer else 0)
    return DataLoader(stream, batch_size=None, num_workers=workers)

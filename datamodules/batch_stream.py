"""An endless stream of batches. Each batch depends only on its number, so a run resumes by starting at a number."""

from __future__ import annotations

import os
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import lightning as L
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from contrastive_reasoning.tasks.base import Split

BatchT = TypeVar("BatchT", covariant=True)
T = TypeVar("T")
Example = tuple[str, str]
"""A prompt and its completion."""


class BatchStream(IterableDataset[BatchT], Generic[BatchT]):
    """Yields the batches first, first + 1, … without end. Loader workers alternate, which preserves this order."""

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
    """A loader of the stream from the trainer's global step on, one optimizer step per batch.

    Every rank draws the whole batch, which is cheap compared to a forward pass, and reads its own rows of it. The
    labels of pairs across ranks are thus available.
    """
    stream = BatchStream(draw, first=trainer.global_step if trainer else 0)
    return DataLoader(
        stream, batch_size=None, num_workers=workers, collate_fn=unchanged, worker_init_fn=leave_signals_to_parent
    )


def leave_signals_to_parent(worker: int) -> None:
    """Lets only the parent process end this loader worker; for ``DataLoader(worker_init_fn=…)``.

    torchrun sends SIGTERM to the whole process group of a rank. The rank finishes its step and needs this worker for
    it; without the worker torch raises a RuntimeError there. Where the sender of a signal is unknown, as on macOS, any
    SIGTERM ends the worker.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "sigwaitinfo"):
        # before the thread starts, which inherits the mask: a thread without it would let SIGTERM end the process
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=_exit_on_sigterm_of, args=(os.getppid(),), daemon=True).start()


def _exit_on_sigterm_of(parent: int) -> None:
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != parent:
        pass
    os._exit(0)


def unchanged(batch: T) -> T:
    """Returns the batch unchanged; replaces torch's default conversion, which turns tuples into lists."""
    return batch


@dataclass(kw_only=True, eq=False, repr=False)
class BatchData(L.LightningDataModule, ABC, Generic[BatchT]):
    """Endless training batches, and a few fixed batches of the validation split."""

    validation_batches: int
    workers: int
    """Number of loader processes, which draw the training batches."""

    def __post_init__(self) -> None:
        super().__init__()

    @abstractmethod
    def batch(self, number: int, *, split: Split = "train") -> BatchT:
        """Batch ``number`` of the training or validation split: a function of number, split and seed."""

    def fixed_batches(self) -> list[BatchT]:
        """The batches of the validation split."""
        return [self.batch(number, split="validation") for number in range(self.validation_batches)]

    def train_dataloader(self) -> DataLoader[BatchT]:
        return training_loader(self.batch, trainer=self.trainer, workers=self.workers)

    def val_dataloader(self) -> Any:
        """A loader of the fixed batches. Data with more than them returns several loaders."""
        batches: Any = self.fixed_batches()
        return DataLoader(batches, batch_size=None, collate_fn=unchanged)


@runtime_checkable
class Reader(Protocol):
    """The part of a text critic's interface that the data needs."""

    def tokenize(self, texts: Sequence[str]) -> dict[str, Tensor]: ...


def reader_of(trainer: L.Trainer | None, *, needed_by: str) -> Any:
    """Returns the critic of the trainer's module; raises a ValueError if it does not read text."""
    critic = getattr(trainer and trainer.lightning_module, "critic", None)
    if not hasattr(critic, "tokenize"):
        raise ValueError(f"{needed_by} needs a critic that reads text, got {type(critic).__name__}")
    return critic

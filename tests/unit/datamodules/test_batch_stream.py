from __future__ import annotations

import multiprocessing
import subprocess
import sys
from itertools import islice
from pathlib import Path

import lightning as L
import pytest
import torch
from torch.utils.data import DataLoader

from datamodules.batch_stream import BatchStream, training_loader


def number_itself(number: int) -> int:
    return number


def test_batch_stream_keeps_the_order_with_two_workers() -> None:
    loader = DataLoader(BatchStream(number_itself, first=5), batch_size=None, num_workers=2)
    assert list(islice(loader, 5)) == [5, 6, 7, 8, 9]


@pytest.mark.skipif(sys.platform != "linux", reason="other platforms do not say who sent a signal")
def test_signals_of_other_processes_leave_loader_workers_running_and_their_parent_ends_them() -> None:
    batches = iter(training_loader(number_itself, trainer=None, workers=2))
    assert [next(batches) for _ in range(3)] == [0, 1, 2]
    workers = multiprocessing.active_children()
    assert len(workers) == 2
    for name in ("TERM", "INT"):
        subprocess.run(["kill", f"-{name}", *(str(worker.pid) for worker in workers)], check=True)
    assert [next(batches) for _ in range(20)] == list(range(3, 23))
    for worker in workers:
        worker.terminate()
        worker.join(timeout=30)
    assert [worker.exitcode for worker in workers] == [0, 0]


def test_training_loader_continues_with_the_next_number_after_resume(tmp_path: Path) -> None:
    class Recorder(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(()))
            self.seen: list[int] = []

        def training_step(self, batch: int, batch_idx: int) -> torch.Tensor:
            self.seen.append(batch)
            return self.weight * batch

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    class Numbers(L.LightningDataModule):
        def train_dataloader(self) -> DataLoader[int]:
            return training_loader(number_itself, trainer=self.trainer, workers=0)

    def trainer(steps: int) -> L.Trainer:
        quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
        return L.Trainer(
            accelerator="cpu", max_steps=steps, default_root_dir=tmp_path, enable_checkpointing=False, **quiet
        )

    first = trainer(3)
    first.fit(module := Recorder(), datamodule=Numbers())
    assert module.seen == [0, 1, 2]
    first.save_checkpoint(tmp_path / "three.ckpt")
    trainer(5).fit(resumed := Recorder(), datamodule=Numbers(), ckpt_path=tmp_path / "three.ckpt", weights_only=False)
    assert resumed.seen == [3, 4]

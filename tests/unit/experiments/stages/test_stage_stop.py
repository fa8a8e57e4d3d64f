"""Stop signals while a real Trainer steps, validates or writes a checkpoint."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from torch.utils.data import DataLoader

from experiments.stages.checkpoints import path_of
from experiments.stages.stage_checkpoint import Interrupted, StageCheckpoint, StopRequest
from tests.unit.experiments.stages.test_stage_checkpoint import VALIDATION, Ask, Line, fit, saving, steps


@pytest.mark.parametrize(("number", "name"), [(signal.SIGTERM, "SIGTERM"), (signal.SIGINT, "Ctrl-C")])
def test_signal_finishes_step_saves_checkpoint_and_stops(tmp_path: Path, number: int, name: str) -> None:
    whole, stopped, resumed = Line(), Line(), Line()
    fit(whole, saving(tmp_path / "whole"))
    before = signal.getsignal(number)
    with pytest.raises(Interrupted, match=rf"{name} .*step=000005\.ckpt"):
        fit(stopped, saving(tmp_path, every=100), Ask(5, number))
    assert signal.getsignal(number) is before
    assert steps(tmp_path) == [5]
    fit(resumed, saving(tmp_path / "on"), resume=path_of(tmp_path, 5))
    assert torch.equal(resumed.weight, whole.weight)


@pytest.mark.parametrize("hook", ["on_validation_start", "on_validation_batch_end", "on_validation_end"])
def test_sigterm_before_first_step_stops_at_once(tmp_path: Path, hook: str) -> None:
    sender, stop = L.Callback(), StopRequest()
    setattr(sender, hook, lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM))
    trainer = L.Trainer(accelerator="cpu", callbacks=[saving(tmp_path, stop), sender], logger=False)
    before, rows = signal.getsignal(signal.SIGTERM), DataLoader(VALIDATION)  # pyright: ignore
    message = r"SIGTERM.*no checkpoint"
    with pytest.raises(Interrupted, match=message), stop.listening():
        trainer.validate(Line(), rows, verbose=False)
    assert signal.getsignal(signal.SIGTERM) is before


def test_second_signal_stops_without_saving(tmp_path: Path) -> None:
    stop = StopRequest()

    class Twice(Ask):
        def on_train_batch_start(self, trainer: L.Trainer, *_: Any) -> None:
            super().on_train_batch_start(trainer)
            if trainer.global_step == self.at - 1:
                while stop.signal_name is None:
                    time.sleep(0.01)  # two signals that arrive together count as one
                super().on_train_batch_start(trainer)
                time.sleep(1)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore SIGINT
    try:
        with pytest.raises((KeyboardInterrupt, SystemExit)):
            fit(Line(), saving(tmp_path, stop, every=100), Twice(5, signal.SIGINT))
    finally:
        signal.signal(signal.SIGINT, before)
    assert steps(tmp_path) == []


def test_signal_while_saving_stops_after_that_checkpoint(tmp_path: Path) -> None:
    class Slow(StageCheckpoint):
        def save(self, *arguments: Any) -> None:
            super().save(*arguments)
            os.kill(os.getpid(), signal.SIGTERM)

    saved = Slow(folder=tmp_path, every=3, keep=9, best=None, stop=StopRequest())
    with pytest.raises(Interrupted, match=r"SIGTERM .*step 3 "):
        fit(Line(), saved)
    assert steps(tmp_path) == [3]

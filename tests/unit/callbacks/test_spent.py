"""Tokens and seconds of a small fit whose clock is moved by hand: a known amount by each thing that happens."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning as L
import pytest
import torch
from torch.utils.data import DataLoader

from callbacks import cost as module
from callbacks.cost import Cost
from contrastive_reasoning.policies.flops import NO_WORK

PREPARING, MEASURING, STEP, VALIDATING, DRAWING = 10.0, 1e6, 1.0, 1e4, 1e8
LENGTHS = [[3, 1], [2, 2], [4, 0], [1, 3]]
"""Tokens of the completions of each step; four in all, as these data begin anew when a fit is resumed."""
THROWN_AWAY = 100
"""Tokens of each step that are in no rollout: refills, continuations."""


class Clock:
    now = 0.0


class Data(L.LightningDataModule):
    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock
        self.prepared = False

    def setup(self, stage: str) -> None:
        self.clock.now += 0 if self.prepared else PREPARING
        self.prepared = True

    def train_dataloader(self) -> Any:
        return DataLoader(range(len(LENGTHS)), batch_size=1, collate_fn=batch_of)  # type: ignore[arg-type]

    val_dataloader = train_dataloader


def batch_of(numbers: list[int]) -> Any:
    mask = torch.arange(4) < torch.tensor(LENGTHS[numbers[0]])[:, None]
    return SimpleNamespace(
        rollouts=SimpleNamespace(mask=mask), generated=replace(NO_WORK, projected=int(mask.sum()) + THROWN_AWAY)
    )


class Learner(L.LightningModule):
    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.clock = clock

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.clock.now += STEP
        return self.weight.sum()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.clock.now += VALIDATING

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Others(L.Callback):
    """Measures the machine at the start, draws pictures after each validation, notes what was logged."""

    def __init__(self, clock: Clock, stop_before: int | None) -> None:
        self.clock = clock
        self.stop_before = stop_before

    def on_train_start(self, *_: Any) -> None:
        self.clock.now += MEASURING

    def on_validation_end(self, *_: Any) -> None:
        self.clock.now += DRAWING

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx == self.stop_before:
            raise KeyboardInterrupt


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "finished_now", lambda: clock.now)
    return clock


def fitted(clock: Clock, folder: Path, *, stop_before: int | None = None, resume: Any = None) -> dict[str, float]:
    """What had been spent after the last step; checkpoints of each step are in ``folder``."""
    keep = L.pytorch.callbacks.ModelCheckpoint(folder, "{step}", every_n_train_steps=1, save_top_k=-1)
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=1,
        callbacks=[Others(clock, stop_before), Cost(), keep],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        val_check_interval=1,
    )
    learner, data = Learner(clock), Data(clock)
    if resume is None:
        trainer.validate(learner, data, verbose=False)
    try:
        trainer.fit(learner, data, ckpt_path=resume, weights_only=True)
    except SystemExit:
        assert stop_before is not None
    return {name: float(value) for name, value in trainer.callback_metrics.items() if "spent" in name}


def test_preparation_and_steps_are_spent_and_measuring_is_not(clock: Clock, tmp_path: Path) -> None:
    assert fitted(clock, tmp_path) == {
        "train/spent/seconds": PREPARING + len(LENGTHS) * STEP,
        "train/spent/tokens": sum(map(sum, LENGTHS)) + THROWN_AWAY * len(LENGTHS),
    }


def test_a_resumed_stage_has_spent_what_an_uninterrupted_one_has(clock: Clock, tmp_path: Path) -> None:
    whole = fitted(clock, tmp_path / "whole")
    fitted(clock, tmp_path / "stopped", stop_before=3)
    resumed = fitted(clock, tmp_path / "stopped", resume=tmp_path / "stopped" / "step=2.ckpt")
    assert resumed == whole


def test_without_rollouts_there_are_only_seconds(clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.batch_of", lambda numbers: torch.tensor(numbers))
    assert set(fitted(clock, tmp_path)) == {"train/spent/seconds"}

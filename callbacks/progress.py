"""Progress of a stage and of its validations, on the display chosen by ``progress``."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import ProgressBar

from contrastive_reasoning.distributed import this_rank
from contrastive_reasoning.progress import Phase, Quiet, steps_done, steps_in_all


class Progress(ProgressBar):
    """Shows steps done and total, time elapsed and left, rate, and selected metrics. Only watches.

    Args:
        stage: the name of the stage.
        metrics: names of the logged metrics to show.
        window: steps over which the rate is taken.
        display: shows it, on the first of several ranks.
    """

    def __init__(self, *, stage: str, metrics: Sequence[str], window: int, display: Quiet) -> None:
        super().__init__()
        self.stage = stage
        self.metrics = tuple(metrics)
        self.window = window
        self.display = display if this_rank() == 0 else Quiet()
        self._training: Phase | None = None
        self._validating: Phase | None = None

    def disable(self) -> None:
        self.display = Quiet()

    def phase(self, name: str, *, unit: str, total: int | None) -> Phase:
        """A phase within this stage, for code that the stage waits for."""
        return Phase(self.display, stage=self.stage, name=name, unit=unit, total=total)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        done, total = steps_done(trainer, pl_module), steps_in_all(trainer, pl_module)
        self._training = Phase(self.display, stage=self.stage, unit="steps", total=total, done=done, window=self.window)

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self._training is not None:
            self._training.move(steps_done(trainer, pl_module), lambda: self._numbers(trainer))

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        batches = sum(trainer.num_val_batches)
        self._validating = self.phase("validating", unit="batches", total=int(batches) if isfinite(batches) else None)

    def on_validation_batch_end(
        self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Shows the newest numbers, including those of training."""
        if self._validating is not None:
            self._validating.move(self._validating.done + 1, lambda: self._numbers(trainer))

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Shows the results, if the validation lasted long enough to be shown before."""
        if self._validating is not None:
            if self._validating.shown:
                self._validating.show(self._validating.done, self._numbers(trainer))
            self._validating.close()
            self._validating = None

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Shows the last numbers, whether due or not."""
        if self._training is not None:
            self._training.show(steps_done(trainer, pl_module), self._numbers(trainer))

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        self.teardown(trainer, pl_module, "fit")  # after an error Lightning does not call teardown

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Closes the bars, including those that an error has left open."""
        for phase in (self._validating, self._training):
            if phase is not None:
                phase.close()
        self._validating = self._training = None

    def _numbers(self, trainer: L.Trainer) -> dict[str, float]:
        logged = trainer.callback_metrics
        return {name: float(logged[name]) for name in self.metrics if name in logged}

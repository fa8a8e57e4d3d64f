"""Steps with a number that is not finite: they are left out and counted; after too many the run stops.

training_step ── backward ── gradients of all ranks ── finite? ─┬─ yes ── clip ── optimizer's step
                                                                └─ no ─── counted, weights as they were
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from lightning import LightningModule
from torch import Tensor

from contrastive_reasoning.distributed import dumped, total
from lightning_modules.optim import AdamW, clip_by_norm
from lightning_modules.zero import zero_of

SKIPPED = "train/health/skipped_steps"


class NotFinite(ArithmeticError):
    """A quantity of this step is nan or infinite, on this rank or on another; no optimizer step was taken with it.

    Args:
        reason: names the quantity.
        update: number, from 1, of the update that was left out with all after it, and how many there are; None where no
            update had begun.
    """

    def __init__(self, reason: str, *, update: tuple[int, int] | None = None) -> None:
        super().__init__(reason)
        self.update = update

    @property
    def place(self) -> str:
        """``update 2 of 4 of`` …, or nothing where the step has no such parts."""
        return "" if self.update is None or self.update[1] == 1 else f"update {self.update[0]} of {self.update[1]} of "


def require_finite(update: tuple[int, int] | None = None, /, **quantities: Tensor | None) -> None:
    """Raise on every rank where a number is not finite on any of them; ``update`` as in ``NotFinite``.

    Raises:
        NotFinite: naming the first quantity of this rank that is not finite.
    """
    bad = [name for name, values in quantities.items() if values is not None and not bool(values.isfinite().all())]
    if total(float(len(bad))):
        reason = f"{bad[0]} is not finite" if bad else "a number is not finite on another rank"
        raise NotFinite(reason, update=update)


class SkippedSteps:
    """Counts the steps that were left out; the count belongs into the owner's checkpoint.

    Args:
        most: how many a run may leave out.

    Raises:
        ValueError: for a negative number.
    """

    def __init__(self, most: int) -> None:
        if most < 0:
            raise ValueError(f"max_skipped_steps must not be negative, got {most}")
        self.most = most
        self.count = 0

    @property
    def metrics(self) -> dict[str, float]:
        return {SKIPPED: float(self.count)}

    def add(self, reason: NotFinite, batch: Callable[[], Mapping[str, object]], *, run: str | Path, step: int) -> None:
        """Count the step after ``step``; ``batch()`` gives what ``torch.load`` reads with ``weights_only``.

        Raises:
            FloatingPointError: where that is one too many; the batch is written to the folder of ``run``.
        """
        self.count += 1
        if self.count > self.most:
            path = dumped(batch(), run=run, step=step + 1)
            part = "update" if reason.place else "step"
            raise FloatingPointError(
                f"{reason} in {reason.place}step {step + 1}, and {self.most} steps were left out before: the run "
                f"stops; its batch is in {path}, and the weights are as they were before that {part}"
            )


def check_gradient_clip(gradient_clip: float | None) -> None:
    """Raise ValueError for a clip that is not positive."""
    if gradient_clip is not None and gradient_clip <= 0:
        raise ValueError(f"gradient_clip must be positive (or null), got {gradient_clip}")


class FiniteSteps(LightningModule, ABC):
    """A module under Lightning's automatic optimization; its training steps return ``nan_unless_finite(loss)``.

    Args:
        optimizer: of all parameters that are trained, with its schedule.
        gradient_clip: the largest norm of the gradient; None: any.
        max_skipped_steps: how many steps a run may leave out.

    Raises:
        ValueError: ``gradient_clip`` is not positive or ``max_skipped_steps`` negative.
    """

    def __init__(self, *, optimizer: AdamW, gradient_clip: float | None, max_skipped_steps: int) -> None:
        super().__init__()
        check_gradient_clip(gradient_clip)
        self.optimizer = optimizer
        self.gradient_clip = gradient_clip
        self.skipped = SkippedSteps(max_skipped_steps)
        self.gradient_norm: Tensor = torch.zeros(())
        """Of all ranks, before clipping, in the last step."""
        self._batch: Any = None

    @abstractmethod
    def plain(self, batch: Any) -> Mapping[str, object]:
        """``batch`` as tensors and strings alone, which is written where the run stops at it."""

    def configure_optimizers(self) -> Any:
        optimizer = self.optimizer(self.parameters())
        scheduler = self.optimizer.scheduler(optimizer)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        self._batch = batch

    def configure_gradient_clipping(self, optimizer: torch.optim.Optimizer, *_: Any, **__: Any) -> None:
        """Called between backward and the optimizer's step; ZeRO clips, and looks at the norm, in that step."""
        if zero_of(self) is None:
            parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            self.gradient_norm = clip_by_norm(parameters, self.gradient_clip)

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        """Backward and step as Lightning does them; then count the step if it was left out.

        Raises:
            FloatingPointError: where that is one too many; the batch is written to the run's folder.
        """
        super().optimizer_step(*args, **kwargs)
        zero = zero_of(self)
        if zero is not None:
            self.gradient_norm = zero.gradient_norm()
        if not bool(self.gradient_norm.isfinite()):
            reason, run = NotFinite("the gradient is not finite"), self.trainer.default_root_dir
            self.skipped.add(reason, lambda: self.plain(self._batch), run=run, step=self.trainer.global_step)
        self.log_dict(self.skipped.metrics, batch_size=1)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["steps_left_out"] = self.skipped.count

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.skipped.count = checkpoint["steps_left_out"]

"""Automatic optimization that learns nothing from a step whose loss or gradient is no number.

training_step ── backward ── gradients of all ranks ── finite? ─┬─ yes ── clip ── optimizer's step
                                                                └─ no ─── counted, weights as they were
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import lightning as L
import torch
from torch import Tensor

from lightning_modules.not_finite import NotFinite, SkippedSteps, kept
from lightning_modules.optim import clip_by_norm
from lightning_modules.zero import zero_of


class FiniteSteps(L.LightningModule, ABC):
    """A module that Lightning optimizes; who extends it gives its losses through ``kept``.

    Args:
        gradient_clip: the largest norm of the gradient; None: any.
        max_skipped_steps: how many steps a run may leave out.

    Raises:
        ValueError: ``gradient_clip`` is not positive or ``max_skipped_steps`` negative.
    """

    def __init__(self, *, gradient_clip: float | None, max_skipped_steps: int) -> None:
        super().__init__()
        if gradient_clip is not None and gradient_clip <= 0:
            raise ValueError(f"gradient_clip must be positive (or null), got {gradient_clip}")
        self.gradient_clip = gradient_clip
        self.skipped = SkippedSteps(max_skipped_steps)
        self.gradient_norm: Tensor = torch.zeros(())
        """Of all ranks, before clipping, in the last step."""
        self._batch: Any = None

    @abstractmethod
    def plain(self, batch: Any) -> Mapping[str, object]:
        """What is left of ``batch`` where the run stops at it: tensors and strings alone."""

    def kept(self, loss: Tensor) -> Tensor:
        """``loss``, for backward; of one that is not finite no rank's gradient is."""
        return kept(loss)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        self._batch = batch

    def configure_gradient_clipping(self, optimizer: torch.optim.Optimizer, *_: Any, **__: Any) -> None:
        """Called between backward and the optimizer's step; ZeRO clips, and looks at the norm, in that step."""
        if zero_of(self) is None:
            parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            self.gradient_norm = clip_by_norm(parameters, self.gradient_clip)

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        """Lightning's, whose backward is in it; then count the step if it was left out.

        Raises:
            FloatingPointError: where that is one too many; the batch is in the run's folder.
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

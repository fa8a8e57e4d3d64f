"""The last checkpoint of a GRPO run, every so many rollout batches: also of those in which only a reward learned.

Lightning's own checkpoint counts optimizer steps, and there are none while a reward is warmed up alone.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Checkpoint


class RolloutCheckpoint(Checkpoint):
    """Replaces ``path`` as a whole, so that there is always one that can be gone on from. Only watches.

    Raises:
        ValueError: if ``every`` is below 1.
    """

    def __init__(self, *, path: Path, every: int) -> None:
        if every < 1:
            raise ValueError(f"checkpoint_every must be at least 1, got {every}")
        self.path = path
        self.every = every

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if int(pl_module.rollout_step) % self.every == 0:
            self.save(trainer)

    def save(self, trainer: L.Trainer) -> None:
        fresh = self.path.with_suffix(".new")
        trainer.save_checkpoint(fresh, weights_only=False)  # all of it, what resumes a run
        if trainer.is_global_zero:
            os.replace(fresh, self.path)
        trainer.strategy.barrier()

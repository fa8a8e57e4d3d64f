"""The checkpoints of a stage: every so many steps, the last few and the best, each written whole or not at all.

Lightning's own callback counts optimizer steps, of which there are none while a reward is warmed up alone.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Checkpoint

from experiments.interrupt import Interrupted, StopRequest
from experiments.kept_checkpoints import PARTIAL, CheckpointError, Kept, Metric, clear, kept, path_of, seal

MODES = ("max", "min")


class StageCheckpoint(Checkpoint):
    """Saves what resumes a run. Only watches, but for stopping where a person asked for it.

    Args:
        folder: where checkpoints are kept.
        every: steps between them: rollout batches where the module counts those, else optimizer steps.
        keep: how many of the newest stay, beside the best.
        best: the validation metric that tells the best, and ``max`` or ``min``; None: none is the best.
        stop: whether somebody has asked the run to stop.

    Raises:
        ValueError: for numbers below 1 or another mode.
        CheckpointError: while training, where a checkpoint cannot be written; the one before is intact.
        Interrupted: while training, after the step in which the stop was asked for has ended and been saved.
    """

    def __init__(
        self, *, folder: Path, every: int, keep: int, best: Mapping[str, str] | None, stop: StopRequest
    ) -> None:
        for name, value in (("checkpoint_every", every), ("checkpoints.keep", keep)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if best is not None and (len(best) != 1 or set(best.values()) - set(MODES)):
            raise ValueError(f"checkpoints.best takes one metric with {' or '.join(MODES)}, got {dict(best)}")
        self.folder = folder
        self.every = every
        self.keep = keep
        self.best = best
        self.stop = stop

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        step = steps_of(trainer, pl_module)
        if self.stop.asked:
            self.save(trainer, step, None)
            raise Interrupted(f"stopped by {self.stop.asked} at step {step} (checkpoint {path_of(self.folder, step)})")
        if step % self.every == 0:
            self.save(trainer, step, None)

    def on_validation_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        """Save a policy that is better than those before it."""
        if self.best is None or trainer.sanity_checking or trainer.state.fn != "fit":
            return
        (name,) = self.best
        if name not in trainer.callback_metrics:
            return
        metric = Metric(name=name, value=float(trainer.callback_metrics[name]))
        found, step = kept(self.folder), steps_of(trainer, pl_module)
        leader = self._leader(found)
        ahead = leader is None or leader.metric is None or self._better(metric, leader.metric)
        if not isfinite(metric.value) or not ahead:
            return
        if step not in [one.step for one in found]:
            self.save(trainer, step, metric)
        elif trainer.is_global_zero:  # saved at the end of this very step
            seal(path_of(self.folder, step), step=step, metric=metric)
            self._let_go()

    def save(self, trainer: L.Trainer, step: int, metric: Metric | None) -> None:
        """Write a checkpoint, and let older ones go."""
        path = path_of(self.folder, step)
        fresh = path.with_suffix(PARTIAL)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            trainer.save_checkpoint(fresh, weights_only=False)  # all of it, what resumes a run
            if trainer.is_global_zero:
                _replace(fresh, path)
                seal(path, step=step, metric=metric)
        except (OSError, RuntimeError) as error:  # torch names a full disk a RuntimeError
            _remove(fresh)
            before = kept(self.folder)
            intact = f"the one before, {before[-1].path}, is intact" if before else "there is none before it"
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise CheckpointError(f"checkpoint {path} cannot be written ({reason}); {intact}") from error
        if trainer.is_global_zero:
            self._let_go()
        trainer.strategy.barrier()

    def _let_go(self) -> None:
        found = kept(self.folder)
        leader = self._leader(found)
        stay = [one.path for one in found[-self.keep :]] + ([] if leader is None else [leader.path])
        clear(self.folder, keep=stay)

    def _leader(self, found: list[Kept]) -> Kept | None:
        """The best so far; of equals the first."""
        leader: Kept | None = None
        for one in found:
            if one.metric is None or self.best is None or one.metric.name not in self.best:
                continue
            if leader is None or leader.metric is None or self._better(one.metric, leader.metric):
                leader = one
        return leader

    def _better(self, metric: Metric, than: Metric) -> bool:
        assert self.best is not None
        return metric.value > than.value if self.best[metric.name] == "max" else metric.value < than.value


def steps_of(trainer: L.Trainer, pl_module: Any) -> int:
    """Rollout batches where the module counts those, else optimizer steps."""
    return int(getattr(pl_module, "rollout_step", trainer.global_step))


def _replace(fresh: Path, path: Path) -> None:
    """Put a new checkpoint in the place of one of the same step, if there is one."""
    _remove(path)
    os.replace(fresh, path)


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

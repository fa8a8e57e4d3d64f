"""Saves checkpoints of a stage: every few steps, at a new best metric and on a stop. Keeps the newest and the best.

A step is saved when the next one begins, before anything is sampled for it. By then all logs and validations of the
step are on disk. So after a kill, nothing of the steps in the checkpoint is lost.

    step k ──► callbacks ──► logged ──► validated ──► saved as k, stopped if requested ──► step k + 1

Lightning's own callback counts optimizer steps, of which there are none while only the reward is warmed up.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from math import inf, isfinite
from pathlib import Path
from types import FrameType
from typing import Any

import lightning as L
import torch
from lightning.fabric.plugins import TorchCheckpointIO

from contrastive_reasoning.distributed import from_first, gather, this_rank
from contrastive_reasoning.errors import RUN_AGAIN, EndsRun
from contrastive_reasoning.progress import steps_done
from experiments.run_folder.logger import RunFolderLogger
from experiments.stages.checkpoints import (
    PARTIAL,
    Metric,
    NotWritten,
    clear,
    kept_checkpoints,
    newest,
    path_of,
    remove,
    seal,
)
from experiments.system.launch import INTERRUPTED, SIGNALS
from experiments.system.terminal import first_line


class Interrupted(EndsRun):
    """Raised if a running stage is stopped. Within a fit, the message names the step and the checkpoint."""

    exit_code = INTERRUPTED
    advice = RUN_AGAIN


class StopRequest:
    """Records whether a signal requested a stop.

    first signal     finishes the step, writes a checkpoint and stops the run
    second signal    reaches the previous handlers and stops at once

    Outside the main thread, where handlers cannot be set, signals are not handled.
    """

    def __init__(self) -> None:
        self.signal_name: str | None = None
        """``Ctrl-C`` or ``SIGTERM``; None without a request."""
        self._before: dict[signal.Signals, Any] = {}

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Allows ``listen`` and ``stop_at_once`` to set handlers; restores the previous handlers at the end.

        Until then Ctrl-C is recorded and handled as before, so that it differs from a KeyboardInterrupt of the code.
        """
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.getsignal(number) for number in SIGNALS}
            if callable(self._before[signal.SIGINT]):  # it may be ignored, as in a shell's background jobs
                signal.signal(signal.SIGINT, self._pass_on)
        try:
            yield
        finally:
            self._restore_handlers()

    def listen(self) -> None:
        for number in self._before:
            signal.signal(number, self._record)

    def stop_at_once(self) -> None:
        """Makes SIGTERM raise at once, as Ctrl-C does anyway, while there is nothing to save."""
        if self._before:
            signal.signal(signal.SIGTERM, _raise)

    def agreed(self) -> str | None:
        """Returns the request of any rank, the same on every rank, because signals reach ranks in different steps.

        A signal that arrives during this exchange is returned by the next call.
        """
        return next((name for name in gather(self.signal_name) if name), None)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        self.signal_name = SIGNALS[signal.Signals(number)]
        self._before[signal.Signals(number)](number, frame)

    def _record(self, number: int, frame: FrameType | None) -> None:
        self.signal_name = SIGNALS[signal.Signals(number)]
        self._restore_handlers()
        print(f"\n{self.signal_name}: stopping after this step; once more to stop now", flush=True)

    def _restore_handlers(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def _raise(number: int, frame: FrameType | None) -> None:
    raise Interrupted(f"stopped by {SIGNALS[signal.Signals(number)]} before the first step (no checkpoint yet)")


class CheckpointFile(TorchCheckpointIO):
    """Writes a checkpoint directly to its path, unlike Lightning, which uses ``$TMPDIR``, where space may be short."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        with Path(path).open("wb") as file:
            torch.save(checkpoint, file)


class StageCheckpoint(L.Callback):
    """Saves resumable checkpoints; must be the first callback. It stops training on request, but does not change it.

    Args:
        folder: folder of the checkpoints.
        every: steps between checkpoints: rollout batches if the module counts them, else optimizer steps.
        keep: number of newest checkpoints to keep, besides the best.
        best: {validation metric: ``max`` or ``min``} that selects the best checkpoint; None: no selection.
        stop: the request to stop the run.

    Raises:
        CheckpointError: during training, if a checkpoint cannot be written; the previous one is intact.
        Interrupted: during training, after the step of a stop request has ended and is saved.
    """

    def __init__(
        self, *, folder: Path, every: int, keep: int, best: Mapping[str, str] | None, stop: StopRequest
    ) -> None:
        self.folder = folder
        self.every = every
        self.keep = keep
        self.best = best
        self.stop = stop
        self._saved = 0  # the last saved step, or the step from which this fit started
        self._measured: Metric | None = None
        self._validated = False  # whether the last step was due for validation, even without batches

    def setup(self, trainer: L.Trainer, pl_module: Any, stage: str) -> None:
        trainer.strategy.checkpoint_io = CheckpointFile()

    def on_train_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        first: Any = trainer
        if first.callbacks[0] is not self:
            raise RuntimeError(f"StageCheckpoint must stand before {type(first.callbacks[0]).__name__}, which may act")
        self._saved = steps_done(trainer, pl_module)
        self.stop.listen()  # only now, because Lightning has just set its own handlers

    def on_validation_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        if trainer.state.fn == "validate":  # before training, Lightning handles SIGTERM only between batches
            self.stop.stop_at_once()

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self._between_steps(trainer, pl_module)

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        done, every = trainer.fit_loop.epoch_loop.batch_progress.total.ready, trainer.val_check_batch
        self._validated = trainer.enable_validation and every is not None and done % every == 0

    def on_train_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        self._between_steps(trainer, pl_module)

    def on_fit_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        """Removes old checkpoints left by an earlier process that was killed right after saving the last step."""
        if trainer.is_global_zero and kept_checkpoints(self.folder):
            self._remove_older()

    def on_save_checkpoint(self, trainer: L.Trainer, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Reverts Lightning's counters of the next step, whose batch it has already fetched.

        Otherwise a resumed run would validate one batch too early, and skip the last validation if the one before it
        was at the previous step.
        """
        loop = checkpoint["loops"]["fit_loop"]
        progress = loop["epoch_loop.batch_progress"]
        if progress["current"]["ready"] > progress["current"]["completed"]:
            progress["is_last_batch"] = False
        for count in (progress["total"], progress["current"]):
            count["ready"] = count["completed"]
        # a validated step is counted again by the resumed run, which would shift the steps at which Lightning logs
        loop["epoch_loop.state_dict"]["_batches_that_stepped"] -= self._validated

    def on_validation_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        for name in self.best or ():
            if name in trainer.callback_metrics:
                self._measured = Metric(name=name, value=float(trainer.callback_metrics[name]))

    def _between_steps(self, trainer: L.Trainer, pl_module: Any) -> None:
        step, metric, self._measured = steps_done(trainer, pl_module), self._measured, None
        stopped_by = self.stop.agreed()  # the same on every rank, also if a signal arrives now
        # _ahead communicates, so each condition before it must be the same on every rank
        if step > self._saved and (stopped_by or step % self.every == 0 or self._ahead(metric)):
            self.save(trainer, step, metric)
            self._saved = step
            stopped_by = stopped_by or self.stop.agreed()  # writing may take long, so look again
        if stopped_by:
            last = newest(self.folder)
            left = "no checkpoint yet" if last is None else f"checkpoint {last}"
            raise Interrupted(f"stopped by {stopped_by} at step {step} ({left})")

    def _ahead(self, metric: Metric | None) -> bool:
        """Whether it is the best so far. Rank 0 decides, because other nodes may not see the last checkpoint yet."""
        if metric is None:  # the same on every rank
            return False
        of_kept = (self._goodness(one.metric) for one in kept_checkpoints(self.folder)) if this_rank() == 0 else ()
        return from_first(self._goodness(metric) > max([-inf, *of_kept]))

    def save(self, trainer: L.Trainer, step: int, metric: Metric | None) -> None:
        path = path_of(self.folder, step)
        fresh = path.with_suffix(PARTIAL)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            trainer.save_checkpoint(fresh, weights_only=False)  # includes the state of optimizer and loops
            for logger in trainer.loggers:
                if isinstance(logger, RunFolderLogger):
                    logger.bring_to_disk()  # a resumed run does not log these values again
            if trainer.is_global_zero:
                _replace(fresh, path)
                seal(path, step=step, metric=metric)
        except (OSError, RuntimeError) as error:  # torch raises RuntimeError for a full disk
            with suppress(OSError):
                remove(fresh)
            before = kept_checkpoints(self.folder)
            why = first_line(error)
            if isinstance(error, RuntimeError):
                why += "; the likely cause is a full disk or a limit on the size of files"
            intact = f"the one before, {before[-1].path}, is intact" if before else "there is none before it"
            raise NotWritten(f"checkpoint {path} cannot be written ({why}); {intact}") from error
        if trainer.is_global_zero:
            self._remove_older()
        trainer.strategy.barrier()

    def _remove_older(self) -> None:
        """Keeps the newest ``keep`` checkpoints and the best; of equally good ones, the first."""
        found = kept_checkpoints(self.folder)
        best = max(found, key=lambda one: self._goodness(one.metric))
        leader = [best.path] if self._goodness(best.metric) > -inf else []
        clear(self.folder, keep=[*leader, *(one.path for one in found[-self.keep :])])

    def _goodness(self, metric: Metric | None) -> float:
        """Returns a value for which higher is better; −∞ without a finite value of the selecting metric."""
        mode = (self.best or {}).get(metric.name) if metric is not None else None
        if metric is None or mode is None or not isfinite(metric.value):
            return -inf
        return metric.value if mode == "max" else -metric.value


def _replace(fresh: Path, path: Path) -> None:
    remove(path)  # a checkpoint of shards is a folder, which os.replace does not overwrite
    os.replace(fresh, path)

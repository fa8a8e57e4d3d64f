"""When a stage saves: every so many steps and at a stop; the last few checkpoints and the best stay.

A step is saved when the next one begins, before anything is drawn for it. By then everything that was logged and
validated after the step is on the disk, too: a run that is killed lacks nothing of the steps in its checkpoint.

    step k ──► callbacks ──► logged ──► validated ──► saved as k, stopped if asked ──► step k + 1

Lightning's own callback counts optimizer steps, and none are taken while a reward is warmed up alone.
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
from contrastive_reasoning.progress import steps_done
from experiments.run_folder.logger import RunFolderLogger
from experiments.stages.checkpoints import (
    PARTIAL,
    Metric,
    NotWritten,
    clear,
    kept,
    newest,
    path_of,
    remove,
    seal,
)
from experiments.system.terminal import first_line

SIGNALS = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}


class Interrupted(Exception):
    """A stage was stopped while it ran; the message names it, the step and the checkpoint that is left."""


class StopRequest:
    """Whether a signal has asked the run to stop.

    first signal     the step ends, a checkpoint is written, the run stops
    second signal    the handlers of before: it stops now

    Outside the main thread, where handlers cannot be set, no signal is listened for.
    """

    def __init__(self) -> None:
        self.asked: str | None = None
        """``Ctrl-C`` or ``SIGTERM``."""
        self._before: dict[signal.Signals, Any] = {}

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Within it ``listen`` and ``stop_at_once`` may set handlers; afterwards those of before are back."""
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.getsignal(number) for number in SIGNALS}
        try:
            yield
        finally:
            self._give_back()

    def listen(self) -> None:
        for number in self._before:
            signal.signal(number, self._ask)

    def stop_at_once(self) -> None:
        """Nothing is to be saved yet: from now on SIGTERM raises, as Ctrl-C does by itself."""
        if self._before:
            signal.signal(signal.SIGTERM, _raise)

    def agreed(self) -> str | None:
        """What was asked on any rank so far, the same on each: signals do not reach all in the same step.

        One that arrives while ranks wait for each other here is returned by the next call.
        """
        return next((asked for asked in gather(self.asked) if asked), None)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = SIGNALS[signal.Signals(number)]
        self._give_back()
        print(f"\n{self.asked}: stopping after this step; once more to stop now", flush=True)

    def _give_back(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def _raise(number: int, frame: FrameType | None) -> None:
    raise Interrupted(f"stopped by {SIGNALS[signal.Signals(number)]} before the first step (no checkpoint yet)")


class CheckpointFile(TorchCheckpointIO):
    """Writes a checkpoint to its path: Lightning's own goes through ``$TMPDIR``, which may have no room for it."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        with Path(path).open("wb") as file:
            torch.save(checkpoint, file)


class StageCheckpoint(L.Callback):
    """Saves what resumes a run; has to be the first callback. Training is not changed by it, only stopped on request.

    Args:
        folder: of the checkpoints.
        every: steps between them: rollout batches where the module counts those, else optimizer steps.
        keep: how many of the newest stay, beside the best.
        best: the validation metric that decides which is the best, and ``max`` or ``min``; None: none is.
        stop: whether the run was asked to stop.

    Raises:
        CheckpointError: while training, where a checkpoint cannot be written; the one before is intact.
        Interrupted: while training, when the step in which the stop was asked for has ended and is saved.
    """

    def __init__(
        self, *, folder: Path, every: int, keep: int, best: Mapping[str, str] | None, stop: StopRequest
    ) -> None:
        for name, value in (("checkpoint_every", every), ("checkpoints.keep", keep)):
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, got {value}")
        one = isinstance(best, Mapping) and len(best) == 1 and set(best.values()) <= {"max", "min"}
        if best is not None and not one:
            raise ValueError(f"checkpoints.best takes one metric with max or min, got {best}")
        self.folder = folder
        self.every = every
        self.keep = keep
        self.best = best
        self.stop = stop
        self._saved = 0  # the last step that is saved, or that this fit began from
        self._measured: Metric | None = None
        self._validated = False  # whether the last step is one to be validated, if only on no batches

    def setup(self, trainer: L.Trainer, pl_module: Any, stage: str) -> None:
        trainer.strategy.checkpoint_io = CheckpointFile()

    def on_train_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        first: Any = trainer
        if first.callbacks[0] is not self:
            raise RuntimeError(f"StageCheckpoint must stand before {type(first.callbacks[0]).__name__}, which may act")
        self._saved = steps_done(trainer, pl_module)
        self.stop.listen()  # only now: Lightning has just set handlers of its own

    def on_validation_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        if trainer.state.fn == "validate":  # before the first step; Lightning handles SIGTERM between batches only
            self.stop.stop_at_once()

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self._between_steps(trainer, pl_module)

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        done, every = trainer.fit_loop.epoch_loop.batch_progress.total.ready, trainer.val_check_batch
        self._validated = trainer.enable_validation and every is not None and done % every == 0

    def on_train_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        self._between_steps(trainer, pl_module)

    def on_fit_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        """Remove older ones where the last step was saved by an earlier process, which was killed before it did so."""
        if trainer.is_global_zero and kept(self.folder):
            self._remove_older()

    def on_save_checkpoint(self, trainer: L.Trainer, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Undo what Lightning has counted of the next step, whose batch it has fetched already.

        A resumed run would validate a batch too early from then on, and skip the last validation if the one before it
        was at the previous step. And where this step was validated, resuming counts it twice, which would shift the
        steps that Lightning logs at.
        """
        loop = checkpoint["loops"]["fit_loop"]
        progress = loop["epoch_loop.batch_progress"]
        if progress["current"]["ready"] > progress["current"]["completed"]:
            progress["is_last_batch"] = False
        for count in (progress["total"], progress["current"]):
            count["ready"] = count["completed"]
        loop["epoch_loop.state_dict"]["_batches_that_stepped"] -= self._validated

    def on_validation_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        for name in self.best or ():
            if name in trainer.callback_metrics:
                self._measured = Metric(name=name, value=float(trainer.callback_metrics[name]))

    def _between_steps(self, trainer: L.Trainer, pl_module: Any) -> None:
        step, metric, self._measured = steps_done(trainer, pl_module), self._measured, None
        asked = self.stop.agreed()  # the same on every rank, whatever reaches one of them from here on
        if step > self._saved and (asked or step % self.every == 0 or self._ahead(metric)):
            self.save(trainer, step, metric)
            self._saved = step
            asked = asked or self.stop.agreed()  # writing may take long
        if asked:
            last = newest(self.folder)
            left = "no checkpoint yet" if last is None else f"checkpoint {last}"
            raise Interrupted(f"stopped by {asked} at step {step} ({left})")

    def _ahead(self, metric: Metric | None) -> bool:
        """Whether it is the best so far, as rank 0 finds: another node may not see yet what was saved last."""
        if metric is None:  # on every rank, or on none
            return False
        of_kept = (self._goodness(one.metric) for one in kept(self.folder)) if this_rank() == 0 else ()
        return from_first(self._goodness(metric) > max([-inf, *of_kept]))

    def save(self, trainer: L.Trainer, step: int, metric: Metric | None) -> None:
        path = path_of(self.folder, step)
        fresh = path.with_suffix(PARTIAL)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            trainer.save_checkpoint(fresh, weights_only=False)  # with the state of optimizer and loops
            for logger in trainer.loggers:
                if isinstance(logger, RunFolderLogger):
                    logger.bring_to_disk()  # else numbers could be lost that a resumed run does not log again
            if trainer.is_global_zero:
                _replace(fresh, path)
                seal(path, step=step, metric=metric)
        except (OSError, RuntimeError) as error:  # torch names a full disk a RuntimeError
            with suppress(OSError):
                remove(fresh)
            before = kept(self.folder)
            intact = f"the one before, {before[-1].path}, is intact" if before else "there is none before it"
            raise NotWritten(f"checkpoint {path} cannot be written ({first_line(error)}); {intact}") from error
        if trainer.is_global_zero:
            self._remove_older()
        trainer.strategy.barrier()

    def _remove_older(self) -> None:
        """Keep the newest ``keep``, and of equally good ones the first."""
        found = kept(self.folder)
        best = max(found, key=lambda one: self._goodness(one.metric))
        leader = [best.path] if self._goodness(best.metric) > -inf else []
        clear(self.folder, keep=[*leader, *(one.path for one in found[-self.keep :])])

    def _goodness(self, metric: Metric | None) -> float:
        """Higher is better; −∞ where nothing was measured, or NaN."""
        mode = (self.best or {}).get(metric.name) if metric is not None else None
        if metric is None or mode is None or not isfinite(metric.value):
            return -inf
        return metric.value if mode == "max" else -metric.value


def _replace(fresh: Path, path: Path) -> None:
    remove(path)
    os.replace(fresh, path)

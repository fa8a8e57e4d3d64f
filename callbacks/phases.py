"""Phases of a training step, from what Lightning reports to a profiler, and a watchdog for phases that last too long.

    data        the wait for a batch                           named by Lightning
    rollout     the hook of the callback that draws            named by Lightning
    reward      rewards and advantages                         named by the module
    update      forward, backward and optimizer steps          named by the module
    lessons     training of a critic beside the policy         named by Lightning
    checkpoint  writing one                                    named by Lightning

A module names a phase by ``with self.trainer.profiler.profile("reward")``, which costs nothing without a listener.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, get_args

import lightning as L
import torch
from lightning.pytorch.profilers import Profiler

from callbacks.online_critic import OnlineTraining
from callbacks.rollout_generation import RolloutGeneration
from contrastive_reasoning.progress import StackDump, steps_done

Phase = Literal["data", "rollout", "reward", "update", "lessons", "validation", "checkpoint", "evaluation"]
WHOLE_BATCH = "run_training_batch"
"""Lightning's name for all that the module does with a batch."""
NAMED = {
    "[_TrainingEpochLoop].train_dataloader_next": "data",
    "reward": "reward",
    "update": "update",
    "save_checkpoint": "checkpoint",
}


class PhaseListener(Profiler):
    """Reports the begin and end of phases, and forwards every call to the profiler that it replaces.

    Args:
        trainer: the trainer whose profiler it replaces until ``stop_listening``.
        begin: called with a phase when it begins.
        end: called with a phase when it ends, also by an error.
        whole_batch: the phase of all that a module does with a batch.
    """

    def __init__(
        self, trainer: Any, *, begin: Callable[[str], None], end: Callable[[str], None], whole_batch: str | None
    ) -> None:
        super().__init__()
        self.trainer = trainer
        self.inner: Profiler = trainer.profiler
        self._begin = begin
        self._end = end
        self._phases = {**NAMED, **({} if whole_batch is None else {WHOLE_BATCH: whole_batch})}
        for callback in trainer.callbacks:
            hook = f"[Callback]{callback.state_key}.on_train_batch_"
            if isinstance(callback, RolloutGeneration):
                self._phases[f"{hook}start"] = "rollout"
            if isinstance(callback, OnlineTraining):
                self._phases |= {f"{hook}start": "lessons", f"{hook}end": "lessons"}
        trainer.profiler = self

    def stop_listening(self) -> None:
        """Stops reporting; restores the previous profiler once all listeners around this one have stopped, too."""
        self._phases = {}
        while isinstance(self.trainer.profiler, PhaseListener) and not self.trainer.profiler._phases:
            self.trainer.profiler = self.trainer.profiler.inner

    def start(self, action_name: str) -> None:
        if action_name in self._phases:
            self._begin(self._phases[action_name])
        self.inner.start(action_name)

    def stop(self, action_name: str) -> None:
        self.inner.stop(action_name)
        if action_name in self._phases:
            self._end(self._phases[action_name])

    def summary(self) -> str:
        return self.inner.summary()

    def describe(self) -> None:
        self.inner.describe()

    def teardown(self, stage: str | None) -> None:
        self.inner.teardown(stage)


class PhaseClock:
    """Adds up the seconds of phases; if a phase is nested in itself, the inner one counts."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._started: dict[str, float] = {}

    def begin(self, phase: str) -> None:
        self._started[phase] = finished_now()

    def end(self, phase: str) -> None:
        if phase in self._started:
            seconds = finished_now() - self._started.pop(phase)
            self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds


def finished_now() -> float:
    """The time in seconds at which all work queued on the accelerator is done; without one, now."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return perf_counter()


class Watchdog(L.Callback):
    """Dumps the stacks of this rank to ``stacks/rank<n>.txt`` in the stage's folder. Only watches.

    It makes a dead rank, a server that does not answer, or a lost file system visible: each looks like a run that
    prints nothing.

    Args:
        limits: phase → seconds; None or absent: no limit. ``data`` is the wait for a training batch, ``lessons`` the
            training of a critic beside the policy. If a module names no phases, as with automatic optimization, its
            whole batch is the update. ``evaluation`` has no trainer; its own stage watches it, from one completion to
            the next.

    Raises:
        ValueError: for an unknown phase, or a limit that is not positive.
    """

    def __init__(self, *, limits: Mapping[str, float | None]) -> None:
        if unknown := limits.keys() - set(get_args(Phase)):
            known = ", ".join(get_args(Phase))
            raise ValueError(f"callbacks.every.watchdog.limits knows {known}, got {', '.join(sorted(unknown))}")
        self.stacks = StackDump(limits, path=Path())
        self._listener: PhaseListener | None = None

    def setup(self, trainer: L.Trainer, pl_module: Any, stage: str) -> None:
        self.stacks.path = Path(trainer.default_root_dir) / "stacks" / f"rank{trainer.global_rank}.txt"

    def on_fit_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        self._listener = PhaseListener(
            trainer,
            begin=lambda phase: self._begin(trainer, pl_module, phase),
            end=self.stacks.end,
            whole_batch="update" if pl_module.automatic_optimization else None,
        )

    def on_validation_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        self._begin(trainer, pl_module, "validation")

    def on_validation_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        self.stacks.end("validation")

    def on_exception(self, trainer: L.Trainer, pl_module: Any, exception: BaseException) -> None:
        self.teardown(trainer, pl_module, "fit")

    def teardown(self, trainer: L.Trainer, pl_module: Any, stage: str) -> None:
        if self._listener is not None:
            self._listener.stop_listening()
        self._listener = None
        self.stacks.close()

    def _begin(self, trainer: L.Trainer, pl_module: Any, phase: str) -> None:
        self.stacks.begin(phase, at=f"after step {steps_done(trainer, pl_module)}")

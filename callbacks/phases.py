"""Phases of a training step, from what Lightning reports to a profiler.

    data        the wait for a batch                           named by Lightning
    rollout     the hook of the callback that draws            named by the callback
    reward      rewards and advantages                         named by the module
    update      forward, backward and optimizer steps          named by the module
    critic      training of a critic beside the policy         named by the callback
    checkpoint  writing one                                    named by Lightning

A module names a phase by ``with self.trainer.profiler.profile("reward")``, which costs nothing without a listener; a
callback by its attribute ``hook_phases``: hook → phase.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any, Literal

import torch
from lightning.pytorch.profilers import Profiler

Phase = Literal["data", "rollout", "reward", "update", "critic", "validation", "checkpoint", "evaluation"]
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
            named: Mapping[str, Phase] = getattr(callback, "hook_phases", {})
            self._phases |= {f"[Callback]{callback.state_key}.{hook}": phase for hook, phase in named.items()}
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

"""Phases of a training step, from what Lightning reports to a profiler: it names whatever it calls, before and after.

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
from time import perf_counter
from typing import Any

import torch
from lightning.pytorch.profilers import Profiler

from callbacks.online_critic import OnlineCritic
from callbacks.rollout_generation import RolloutGeneration

DATA, ROLLOUT, REWARD, UPDATE, LESSONS, CHECKPOINT = "data", "rollout", "reward", "update", "lessons", "checkpoint"
WHOLE_BATCH = "run_training_batch"
"""Lightning's name for all that the module does with a batch."""
NAMED = {
    "[_TrainingEpochLoop].train_dataloader_next": DATA,
    REWARD: REWARD,
    UPDATE: UPDATE,
    "save_checkpoint": CHECKPOINT,
}


class PhaseListener(Profiler):
    """Reports phases that begin and end, and passes everything on to the profiler that was there before.

    Args:
        inner: that profiler.
        phases: Lightning's name of an action → its phase.
        begin: called with a phase when it begins.
        end: called with a phase when it ends, by an error too.
    """

    def __init__(
        self, inner: Profiler, *, phases: Mapping[str, str], begin: Callable[[str], None], end: Callable[[str], None]
    ) -> None:
        super().__init__()
        self.inner = inner
        self._phases = phases
        self._begin = begin
        self._end = end

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


def listen(
    trainer: Any, *, begin: Callable[[str], None], end: Callable[[str], None], whole_batch: str | None
) -> PhaseListener:
    """A listener in the place of the trainer's profiler; ``whole_batch`` is the phase of all that a module does."""
    phases = {**NAMED, **({} if whole_batch is None else {WHOLE_BATCH: whole_batch})}
    for callback in trainer.callbacks:
        if isinstance(callback, RolloutGeneration):
            phases[f"[Callback]{callback.state_key}.on_train_batch_start"] = ROLLOUT
        if isinstance(callback, OnlineCritic):
            phases |= {f"[Callback]{callback.state_key}.on_train_batch_{edge}": LESSONS for edge in ("start", "end")}
    trainer.profiler = PhaseListener(trainer.profiler, phases=phases, begin=begin, end=end)
    return trainer.profiler


def stop_listening(trainer: Any, listener: PhaseListener | None) -> None:
    """Take ``listener`` out of the chain of profilers."""
    if listener is None:
        return
    if trainer.profiler is listener:
        trainer.profiler = listener.inner
    outer = trainer.profiler
    while isinstance(outer, PhaseListener):
        if outer.inner is listener:
            outer.inner = listener.inner
        outer = outer.inner


class PhaseClock:
    """Adds up the seconds of the phases of a step; of a phase within itself the inner one counts."""

    def __init__(self) -> None:
        self._started: dict[str, float] = {}
        self._seconds: dict[str, float] = {}

    def begin(self, phase: str) -> None:
        self._started[phase] = finished_now()

    def end(self, phase: str) -> None:
        if phase in self._started:
            seconds = finished_now() - self._started.pop(phase)
            self._seconds[phase] = self._seconds.get(phase, 0.0) + seconds

    def take(self) -> dict[str, float]:
        """Seconds of rollout, reward and update, if they occurred, since the last call.

        A module that names neither reward nor update, as with automatic optimization, has its whole batch as the
        update.
        """
        seconds, self._seconds = self._seconds, {}
        if WHOLE_BATCH in seconds and not seconds.keys() & {REWARD, UPDATE}:
            seconds[UPDATE] = seconds[WHOLE_BATCH]
        return {phase: seconds[phase] for phase in (ROLLOUT, REWARD, UPDATE) if phase in seconds}


def finished_now() -> float:
    """The time in seconds at which all work queued on the accelerator is done; without one, now."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return perf_counter()

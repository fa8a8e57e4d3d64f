"""Seconds per phase of a step, from what Lightning tells a profiler: it names whatever it calls, before and after.

    rollout   the hook of the callback that draws              named by Lightning
    reward    rewards and advantages                           named by the module
    update    forward, backward and optimizer steps            named by the module

A module names its own with ``with self.trainer.profiler.profile("reward"):``, which costs nothing where no one listens.
One that names none, as with automatic optimization, has its whole batch taken for the update.
"""

from __future__ import annotations

from collections.abc import Iterable
from time import perf_counter
from typing import Any

import torch
from lightning.pytorch.profilers import PassThroughProfiler, Profiler

from callbacks.rollout_generation import RolloutGeneration

ROLLOUT, REWARD, UPDATE = "rollout", "reward", "update"
WHOLE_BATCH = "run_training_batch"
"""Lightning's name for all that the module does with a batch."""


class PhaseClock(Profiler):
    """Adds up the seconds of the actions it listens to; of an action within itself the outer one counts.

    Args:
        rollouts: names of the actions that draw rollouts.
    """

    def __init__(self, rollouts: Iterable[str]) -> None:
        super().__init__()
        self._phases = {REWARD: REWARD, UPDATE: UPDATE, WHOLE_BATCH: WHOLE_BATCH}
        self._phases |= dict.fromkeys(rollouts, ROLLOUT)
        self._started: dict[str, float] = {}
        self._seconds: dict[str, float] = {}

    def start(self, action_name: str) -> None:
        if action_name in self._phases:
            self._started[action_name] = finished_now()

    def stop(self, action_name: str) -> None:
        if action_name in self._started:
            phase = self._phases[action_name]
            taken = finished_now() - self._started.pop(action_name)
            self._seconds[phase] = self._seconds.get(phase, 0.0) + taken

    def take(self) -> dict[str, float]:
        """Seconds of each phase that occurred since this was last asked."""
        seconds, self._seconds = self._seconds, {}
        batch = seconds.pop(WHOLE_BATCH, None)
        if batch is not None and not seconds.keys() & {REWARD, UPDATE}:
            seconds[UPDATE] = batch
        return seconds


def attached_clock(trainer: Any) -> PhaseClock | None:
    """A clock that listens to ``trainer``; None where someone has chosen a profiler, of which there can be one."""
    if not isinstance(trainer.profiler, PassThroughProfiler | PhaseClock):
        return None
    clock = PhaseClock(drawing_actions(trainer))
    trainer.profiler = clock
    return clock


def drawing_actions(trainer: Any) -> list[str]:
    """Lightning's names for what draws rollouts."""
    drawing = [callback for callback in trainer.callbacks if isinstance(callback, RolloutGeneration)]
    return [f"[Callback]{callback.state_key}.on_train_batch_start" for callback in drawing]


def detach_clock(trainer: Any, clock: PhaseClock | None) -> None:
    """Leave ``trainer`` without a profiler, as it was before ``clock``."""
    if trainer.profiler is clock:
        trainer.profiler = PassThroughProfiler()


def finished_now() -> float:
    """The time when what was asked of the accelerator is done, in seconds; without one, now."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return perf_counter()

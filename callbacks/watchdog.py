"""Says where a run hangs: when a phase of a step lasts too long, the stacks of all threads go into the run folder.

A dead rank, a server that does not answer, a file system that is gone: what is seen of each is a run that says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import lightning as L
from lightning.pytorch.profilers import Profiler

from callbacks.online_critic import OnlineCritic
from callbacks.phase_clock import REWARD, ROLLOUT, UPDATE, WHOLE_BATCH, drawing_actions
from contrastive_reasoning.progress import StackDump, steps_done

Phase = Literal["data", "rollout", "reward", "update", "lessons", "validation", "checkpoint", "evaluation"]
DATA, LESSONS, VALIDATION, CHECKPOINT = "data", "lessons", "validation", "checkpoint"
FETCHING = "[_TrainingEpochLoop].train_dataloader_next"
"""Lightning's name for the wait for a batch."""
SAVING = "save_checkpoint"
"""Lightning's name for the writing of a checkpoint."""
FOLDER = "stacks"


class Watchdog(L.Callback):
    """Dumps the stacks of this rank to ``stacks/rank<n>.txt`` of the stage's folder. Only watches.

    Args:
        limits: phase → seconds; null, or left out: as long as it likes. ``data`` is the wait for a training batch,
            ``lessons`` are those of a critic beside the policy. Where a module names no phases, as with automatic
            optimization, its whole batch is the update. ``evaluation``, of which no trainer knows, is watched by its
            own stage, from one completion to the next.

    Raises:
        ValueError: for an unknown phase, or a limit that is not positive.
    """

    def __init__(self, *, limits: Mapping[str, float | None]) -> None:
        if unknown := limits.keys() - set(get_args(Phase)):
            known = ", ".join(get_args(Phase))
            raise ValueError(f"callbacks.every.watchdog.limits knows {known}, got {', '.join(sorted(unknown))}")
        self.limits = {phase: limit for phase, limit in limits.items() if limit is not None}
        for phase, limit in self.limits.items():
            if not limit > 0:
                raise ValueError(f"callbacks.every.watchdog.limits.{phase} must be positive (or null), got {limit}")
        self._stacks: StackDump | None = None
        self._listener: Listener | None = None

    def setup(self, trainer: L.Trainer, pl_module: Any, stage: str) -> None:
        if self.limits and self._stacks is None:
            self._stacks = StackDump(Path(trainer.default_root_dir) / FOLDER / f"rank{trainer.global_rank}.txt")

    def on_fit_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        """Listen to what the profiler is told; only now, for others have put theirs in its place meanwhile."""
        whole = {WHOLE_BATCH: UPDATE} if pl_module.automatic_optimization else {}
        named = {FETCHING: DATA, REWARD: REWARD, UPDATE: UPDATE, SAVING: CHECKPOINT, **whole}
        named |= dict.fromkeys(drawing_actions(trainer), ROLLOUT) | dict.fromkeys(teaching_actions(trainer), LESSONS)
        holder: Any = trainer
        self._listener = Listener(
            holder.profiler,
            phases=named,
            begin=lambda phase: self._begin(trainer, pl_module, phase),
            end=self._end,
        )
        holder.profiler = self._listener

    def on_validation_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        self._begin(trainer, pl_module, VALIDATION)

    def on_validation_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        self._end(VALIDATION)

    def on_fit_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        self._stop_listening(trainer)

    def on_exception(self, trainer: L.Trainer, pl_module: Any, exception: BaseException) -> None:
        self._stop_listening(trainer)
        self._close()

    def teardown(self, trainer: L.Trainer, pl_module: Any, stage: str) -> None:
        self._close()

    def _begin(self, trainer: L.Trainer, pl_module: Any, phase: str) -> None:
        if self._stacks is not None and phase in self.limits:
            at = f"after step {steps_done(trainer, pl_module)}"
            self._stacks.begin(phase, limit=self.limits[phase], at=at)

    def _end(self, phase: str) -> None:
        if self._stacks is not None:
            self._stacks.end(phase)

    def _stop_listening(self, trainer: L.Trainer) -> None:
        holder: Any = trainer
        if self._listener is not None and holder.profiler is self._listener:
            holder.profiler = self._listener.inner
        self._listener = None

    def _close(self) -> None:
        if self._stacks is not None:
            self._stacks.close()
        self._stacks = None


def teaching_actions(trainer: Any) -> list[str]:
    """Lightning's names for what teaches a critic beside the policy, and lets it score."""
    keys = [callback.state_key for callback in trainer.callbacks if isinstance(callback, OnlineCritic)]
    return [f"[Callback]{key}.on_train_batch_{edge}" for key in keys for edge in ("start", "end")]


class Listener(Profiler):
    """Hands all that a profiler is told on to another, and tells of the phases that begin and end.

    Args:
        inner: the profiler that was there.
        phases: Lightning's name of an action → the phase that it is.
        begin: called with a phase when it begins.
        end: called with a phase when it ends, in whatever way.
    """

    def __init__(
        self, inner: Profiler, *, phases: Mapping[str, str], begin: Callable[[str], None], end: Callable[[str], None]
    ) -> None:
        super().__init__()
        self.inner = inner
        self._phases = dict(phases)
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

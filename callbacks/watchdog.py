"""Reports where a run hangs: when a phase lasts too long, the stacks of all threads go into the run folder.

A dead rank, a server that does not answer, a lost file system: all of them look like a run that prints nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import lightning as L

from callbacks.phases import UPDATE, PhaseListener, listen, stop_listening
from contrastive_reasoning.progress import StackDump, steps_done

Phase = Literal["data", "rollout", "reward", "update", "lessons", "validation", "checkpoint", "evaluation"]
VALIDATION = "validation"


class Watchdog(L.Callback):
    """Dumps the stacks of this rank to ``stacks/rank<n>.txt`` of the stage's folder. Only watches.

    Args:
        limits: phase → seconds; null, or left out: any. ``data`` is the wait for a training batch, ``lessons`` the
            training of a critic beside the policy. Where a module names no phases, as with automatic optimization, its
            whole batch is the update. ``evaluation``, which has no trainer, is watched by its own stage, from one
            completion to the next.

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
        self._listener: PhaseListener | None = None

    def setup(self, trainer: L.Trainer, pl_module: Any, stage: str) -> None:
        if self.limits and self._stacks is None:
            self._stacks = StackDump(Path(trainer.default_root_dir) / "stacks" / f"rank{trainer.global_rank}.txt")

    def on_fit_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        self._listener = listen(
            trainer,
            begin=lambda phase: self._begin(trainer, pl_module, phase),
            end=self._end,
            whole_batch=UPDATE if pl_module.automatic_optimization else None,
        )

    def on_validation_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        self._begin(trainer, pl_module, VALIDATION)

    def on_validation_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        self._end(VALIDATION)

    def on_fit_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        stop_listening(trainer, self._listener)

    def on_exception(self, trainer: L.Trainer, pl_module: Any, exception: BaseException) -> None:
        stop_listening(trainer, self._listener)
        self.teardown(trainer, pl_module, "fit")

    def teardown(self, trainer: L.Trainer, pl_module: Any, stage: str) -> None:
        if self._stacks is not None:
            self._stacks.close()
        self._stacks = None

    def _begin(self, trainer: L.Trainer, pl_module: Any, phase: str) -> None:
        if self._stacks is not None and phase in self.limits:
            self._stacks.begin(phase, limit=self.limits[phase], at=f"after step {steps_done(trainer, pl_module)}")

    def _end(self, phase: str) -> None:
        if self._stacks is not None:
            self._stacks.end(phase)

"""A watchdog for phases that last too long: it writes where every thread stands, and stops nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import lightning as L

from callbacks.phases import Phase, PhaseListener
from contrastive_reasoning.progress import steps_done
from contrastive_reasoning.stack_dump import StackDump


class Watchdog(L.Callback):
    """Dumps the stacks of this rank to ``stacks/rank<n>.txt`` in the stage's folder. Only watches.

    It makes a dead rank, a server that does not answer, or a lost file system visible: each looks like a run that
    prints nothing.

    Args:
        limits: phase → seconds; None or absent: no limit. ``data`` is the wait for a training batch, ``critic`` the
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
        self.teardown(trainer, pl_module, "fit")  # after an error Lightning does not call teardown

    def teardown(self, trainer: L.Trainer, pl_module: Any, stage: str) -> None:
        if self._listener is not None:
            self._listener.stop_listening()
        self._listener = None
        self.stacks.close()

    def _begin(self, trainer: L.Trainer, pl_module: Any, phase: str) -> None:
        self.stacks.begin(phase, at=f"after step {steps_done(trainer, pl_module)}")

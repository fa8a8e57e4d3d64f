"""How far a stage is, in its own steps: the x axis of what it logs."""

from __future__ import annotations

from math import isfinite
from typing import Any


def steps_done(trainer: Any, module: Any) -> int:
    """Rollout batches of a module that counts them; of others the optimizer steps that Lightning counts."""
    return int(getattr(module, "rollout_step", trainer.global_step))


def steps_in_all(trainer: Any, module: Any) -> int | None:
    """How many of :func:`steps_done` there will be; None where that is open.

    A rollout batch may hold several optimizer steps, or none while a reward warms up, so ``max_steps`` is no answer.
    """
    most = trainer.num_training_batches if hasattr(module, "rollout_step") else trainer.max_steps
    return int(most) if isfinite(most) and most >= 0 else None

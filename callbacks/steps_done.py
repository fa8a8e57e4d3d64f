"""How far a stage is, in its own steps: the x axis of what it logs."""

from __future__ import annotations

from typing import Any

import lightning as L


def steps_done(trainer: L.Trainer, module: Any) -> int:
    """Rollout batches of a module that counts them; of others the optimizer steps that Lightning counts."""
    return int(getattr(module, "rollout_step", trainer.global_step))

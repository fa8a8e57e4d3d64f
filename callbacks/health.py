"""Says when a quantity leaves the range in which training makes sense. Steps of no number: ``lightning_modules``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import lightning as L
from lightning.pytorch.utilities import rank_zero_warn

from contrastive_reasoning.progress import steps_done


class Health(L.Callback):
    """Logs ``train/health/<room>_<quantity>``, 1 outside the range, else 0. Only watches.

    Args:
        limits: metric → [low, high], either of them null for open. The first step outside is also said in a warning.
    """

    def __init__(self, *, limits: Mapping[str, Sequence[float | None]]) -> None:
        for name, limit in limits.items():
            if len(limit) != 2:
                raise ValueError(f"callbacks.health.limits of {name} must be [low, high], got {list(limit)}")
        self.limits = {name: (limit[0], limit[1]) for name, limit in limits.items()}
        self._warned: set[str] = set()

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Look at what the step has logged."""
        logged: Mapping[str, Any] = trainer.callback_metrics
        # where a step may log nothing, Lightning has its last values still, and would repeat what is said of them
        measured: Mapping[str, Any] = getattr(pl_module, "reported", logged)
        outside = {name: self._outside(name, float(measured[name])) for name in self.limits if name in measured}
        if outside:
            say = getattr(pl_module, "report_step", pl_module.log_dict)
            say({health_name(name): float(out) for name, out in outside.items()}, batch_size=1)
        for name in (name for name, out in outside.items() if out and name not in self._warned):
            self._warned.add(name)
            low, high = self.limits[name]
            step = steps_done(trainer, pl_module)
            rank_zero_warn(
                f"{name} is {float(measured[name]):.4g} at step {step}, outside of [{low}, {high}]; "
                f"{health_name(name)} counts how often"
            )

    def _outside(self, name: str, value: float) -> bool:
        low, high = self.limits[name]
        return math.isnan(value) or (low is not None and value < low) or (high is not None and value > high)


def health_name(metric: str) -> str:
    """``train/objective/ratio_max`` → ``train/health/objective_ratio_max``."""
    return "train/health/" + metric.removeprefix("train/").replace("/", "_")

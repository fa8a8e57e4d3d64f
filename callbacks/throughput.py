"""How fast a stage goes: steps and, where the module counts them, tokens per second, and the seconds that are left."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import lightning as L

from callbacks.pace import Pace

ROOM = "train/throughput/"


class Throughput(L.Callback):
    """Logs ``train/throughput/{steps_per_second, seconds_left, tokens_per_second}``. Only watches.

    Args:
        window: steps over which rates are taken.
        tokens: the logged metric that counts the tokens of one step on one rank; null: the module says its own rates.
    """

    def __init__(self, *, window: int, tokens: str | None) -> None:
        self._pace = Pace(window)
        self._token_pace = Pace(window)
        self.tokens = tokens
        self._seen = 0

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._mark(trainer)

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count the step that ended and log the rates."""
        if self.tokens is not None and self.tokens in trainer.callback_metrics:
            self._seen += int(trainer.callback_metrics[self.tokens]) * trainer.world_size
        self._mark(trainer)
        rates = {
            "steps_per_second": self._pace.rate,
            "seconds_left": self._pace.seconds_left(trainer.max_steps),
            "tokens_per_second": self._token_pace.rate if self._seen else None,
        }
        for name, value in rates.items():
            if value is not None:
                pl_module.log(ROOM + name, value, batch_size=1)

    def _mark(self, trainer: L.Trainer) -> None:
        now = perf_counter()
        self._pace.mark(trainer.global_step, now)
        self._token_pace.mark(self._seen, now)

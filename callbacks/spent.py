"""What a stage has spent so far: the tokens it generated and the seconds it trained, by which arms are compared."""

from __future__ import annotations

from typing import Any

import lightning as L

from callbacks.phase_clock import finished_now
from contrastive_reasoning.distributed import total

ROOM = "train/spent/"


class Spent(L.Callback):
    """Logs ``train/spent/seconds`` of each step and, with rollouts, ``train/spent/tokens``. Only watches.

    Both only grow, and a resumed stage goes on from the values of its checkpoint: what was lost is not counted twice.

    - tokens: all that the policy generated to learn from, refills and continuations too, as whoever draws rollouts
      counts them in ``batch.generated``; on all ranks as on this one.
    - seconds: from the making of this callback on, so that preparing the data counts, without validation, which only
      measures. It belongs last among a stage's callbacks: pictures drawn after a validation are then left out too.
    """

    def __init__(self) -> None:
        self.tokens = 0
        self.seconds = 0.0
        self._since = finished_now()

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._count()

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._since = finished_now()  # callbacks have measured the machine meanwhile

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._count()

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._since = finished_now()

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Add what the step that ended has cost."""
        self._count()
        pl_module.log(f"{ROOM}seconds", self.seconds, batch_size=1)
        if getattr(batch, "rollouts", None) is not None:
            self.tokens += int(total(float(batch.generated.projected)))
            pl_module.log(f"{ROOM}tokens", float(self.tokens), batch_size=1)

    def state_dict(self) -> dict[str, Any]:
        return {"tokens": self.tokens, "seconds": self.seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.tokens, self.seconds = int(state_dict["tokens"]), float(state_dict["seconds"])
        self._since = finished_now()

    def _count(self) -> None:
        now = finished_now()
        self.seconds, self._since = self.seconds + now - self._since, now

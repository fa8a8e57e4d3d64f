"""What a step costs: how fast a stage goes, where the seconds go, how much of the device is used, and memory."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Any

import lightning as L

from callbacks.memory import memory_in_use, peak_memory
from callbacks.phase_clock import PhaseClock, attached_clock, detach_clock
from callbacks.utilisation import Utilisation
from contrastive_reasoning.progress import Pace, steps_done, steps_in_all

ROOM = "train/throughput/"


class Throughput(L.Callback):
    """Logs the metrics of ``train/throughput/`` after every step, of this rank. Only watches.

    - ``steps_per_second``, ``seconds_left``, ``tokens_per_second``: over the last steps, validation between them too.
    - ``step_seconds`` without validation, of which ``rollout_seconds``, ``reward_seconds`` (advantages too),
      ``update_seconds`` and ``rest_seconds``: data, logging, pictures, checkpoints. See ``phase_clock``.
    - ``update_tokens_per_second``, ``padding_share`` and what ``utilisation`` says: see there.
    - ``memory_megabytes`` and ``peak_memory_megabytes``.

    Args:
        window: steps over which rates are taken.
        tokens: the logged metric that counts the tokens of one step, of all ranks; null: the module says its own rates.
        peak_flops: floating-point operations per second that count as full use of one device; null: measured.
    """

    def __init__(self, *, window: int, tokens: str | None, peak_flops: float | None) -> None:
        self._pace = Pace(window)
        self._token_pace = Pace(window)
        self.tokens = tokens
        self._seen = 0
        self._utilisation = Utilisation(peak_flops)
        self._clock: PhaseClock | None = None

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        self._clock = attached_clock(trainer) if stage == "fit" else None

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._utilisation.look_at(pl_module)
        self._step_began = perf_counter()
        self._validating = 0.0
        self._mark(trainer, pl_module)

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._validation_began = perf_counter()

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._validating = perf_counter() - self._validation_began

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Log what the step that ended has cost."""
        if self.tokens is not None and self.tokens in trainer.callback_metrics:
            self._seen += int(trainer.callback_metrics[self.tokens])
        self._mark(trainer, pl_module)
        seconds = self._seconds()
        total = steps_in_all(trainer, pl_module)
        values = {
            "steps_per_second": self._pace.rate,
            "seconds_left": None if total is None else self._pace.seconds_left(total),
            "tokens_per_second": self._token_pace.rate if self._seen else None,
            **{f"{phase}_seconds": taken for phase, taken in seconds.items()},
            **self._utilisation(pl_module, batch, seconds),
            "memory_megabytes": memory_in_use(pl_module.device),
            "peak_memory_megabytes": peak_memory(pl_module.device),
        }
        for name, value in values.items():
            if value is not None:
                pl_module.log(ROOM + name, value, batch_size=1)

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        detach_clock(trainer, self._clock)

    def _seconds(self) -> Mapping[str, float]:
        """Of the step and its phases, which add up to it where they can be told apart."""
        now = perf_counter()
        step = now - self._step_began - self._validating
        self._step_began, self._validating = now, 0.0
        if self._clock is None:
            return {"step": step}
        phases = self._clock.take()
        return {"step": step, **phases, "rest": step - sum(phases.values())}

    def _mark(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        now = perf_counter()
        self._pace.mark(steps_done(trainer, pl_module), now)
        self._token_pace.mark(self._seen, now)

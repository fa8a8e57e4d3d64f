"""Measures the cost of CLIPO's reward: alternating fits of an experiment with it and one without it.

The learning rate is so small that both see the same completions. The ratio is the seconds with CLIPO's reward over
those without it, an overhead.
"""

from __future__ import annotations

from statistics import median
from time import perf_counter
from typing import Any

import lightning as L
from hydra import compose
from omegaconf import DictConfig

from benchmarks.measures import Result, compare
from experiments.assemble import build
from experiments.schema import composing

WORKLOAD = "arithmetic stories, one GRPO step of the laptop scale"
WITHOUT = "the same objective without the contrastive reward"
STILL = "budget.grpo.learning_rate=1e-12"
WARM_UP = 2
"""Number of first steps of a repeat that are not counted."""
STEPS = 8
"""Number of counted steps of a repeat."""


class StepTimes(L.Callback):
    """Records the seconds of each training step, rollouts included."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._start = 0.0

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self._start = perf_counter()

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.seconds.append(perf_counter() - self._start)


def clipo_overhead(*, repeats: int) -> Result:
    """Runs both experiments alternately, ``repeats`` times, and returns their ratio."""
    with composing():
        clipo = compose("config", ["experiment=clipo_laptop", "budget.clipo.warmup_steps=0", STILL])
        plain = compose("config", ["experiment=grpo_laptop", STILL])
    pairs = [(_step_seconds(clipo), _step_seconds(plain)) for _ in range(repeats)]
    ours, theirs = ([pair[arm] for pair in pairs] for arm in (0, 1))
    return compare("clipo_overhead", WORKLOAD, WITHOUT, ours=ours, theirs=theirs, overhead=True)


def _step_seconds(config: DictConfig) -> float:
    """Returns the median seconds of the counted steps of a new fit."""
    module, data, generation = (build(config, key) for key in ("module", "prompts", "rollout"))
    times = StepTimes()
    trainer = build(config, "trainer")(
        max_epochs=1,
        limit_train_batches=WARM_UP + STEPS,
        limit_val_batches=0,
        callbacks=[times, generation],  # in this order: the time includes the rollouts
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.fit(module, datamodule=data)
    return median(times.seconds[WARM_UP:])

"""What CLIPO's reward costs: two whole experiments in turn.

The learning rate is so small that both see the same completions. The ratio is ours over theirs: an overhead.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from time import perf_counter
from typing import Any

import lightning as L
from hydra import compose, initialize_config_module
from omegaconf import DictConfig

from benchmarks.measures import Measure, Result, overhead
from experiments.assemble import build
from experiments.stages.train import PARTS

STILL = "budget.grpo.learning_rate=1e-12"
WARM_UP = 2
"""First steps of a repeat, which are not counted."""
STEPS = 8
"""Counted steps of a repeat."""


class StepTimes(L.Callback):
    """Seconds of each training step, rollouts included."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._start = 0.0

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self._start = perf_counter()

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.seconds.append(perf_counter() - self._start)


def run_overhead(measure: Measure, *, repeats: int, steps: int = STEPS) -> Result:
    """Both arms in turn, ``repeats`` times, ``steps`` counted steps each."""
    arms = [composed([*overrides, STILL]) for overrides in (measure.ours, measure.theirs)]
    pairs = [(step_seconds(arms[0], steps), step_seconds(arms[1], steps)) for _ in range(repeats)]
    ours, theirs = ([pair[arm] for pair in pairs] for arm in (0, 1))
    return overhead(measure.measure, measure.workload, measure.peer, ours=ours, theirs=theirs)


def composed(overrides: Sequence[str]) -> DictConfig:
    with initialize_config_module("conf", version_base="1.3"):
        return compose("config", list(overrides))


def step_seconds(config: DictConfig, steps: int) -> float:
    """The median of the counted steps of a fresh fit."""
    module, data, generation = (build(config, key) for key in PARTS["grpo"])
    times = StepTimes()
    trainer = build(config, "trainer")(
        max_epochs=1,
        limit_train_batches=WARM_UP + steps,
        limit_val_batches=0,
        callbacks=[times, generation],  # in this order: the time includes the rollouts
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.fit(module, datamodule=data)
    return median(times.seconds[WARM_UP:])

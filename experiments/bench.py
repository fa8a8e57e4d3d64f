"""What parts cost, as ratios in one run on the same work:  make bench

Each measure trains two arms in turn, several times, with a learning rate so small that both see the same completions.
The ratio is that of the medians of their steps; its spread is over the repeats. Results go to ``outputs/bench.json``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import lightning as L
from hydra import compose, initialize_config_module
from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table

from experiments.assemble import build
from experiments.files import write_json
from experiments.fits import PARTS
from experiments.quiet import be_quiet
from experiments.schema import register

OUTPUT = Path("outputs") / "bench.json"
STILL = "budget.grpo.learning_rate=1e-12"
WARM_UP = 2
"""First steps of a repeat, which are not counted."""


@dataclass(frozen=True, kw_only=True)
class Measure:
    """An arm against what it is compared with."""

    measure: str
    workload: str
    peer: str
    ours: Sequence[str]
    """Overrides of our arm."""
    theirs: Sequence[str]


MEASURES = (
    Measure(
        measure="clipo_overhead",
        workload="arithmetic stories, one GRPO step of the laptop scale",
        peer="the same objective without the contrastive reward",
        ours=["experiment=clipo_laptop", "budget.clipo.warmup_steps=0"],
        theirs=["experiment=grpo_laptop"],
    ),
)


@dataclass(frozen=True, kw_only=True)
class Result:
    measure: str
    workload: str
    peer: str
    ratio: float
    """Our seconds over theirs: the median of the repeats' ratios."""
    ratio_min: float
    ratio_max: float
    ours_s: float
    peer_s: float


class StepTimes(L.Callback):
    """Seconds of each training step, rollouts included."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._start = 0.0

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self._start = perf_counter()

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.seconds.append(perf_counter() - self._start)


def run_measure(measure: Measure, *, repeats: int, steps: int) -> Result:
    """Both arms in turn, ``repeats`` times, ``steps`` counted steps each."""
    arms = [composed([*overrides, STILL]) for overrides in (measure.ours, measure.theirs)]
    pairs = [(step_seconds(arms[0], steps), step_seconds(arms[1], steps)) for _ in range(repeats)]
    ratios = [ours / theirs for ours, theirs in pairs]
    return Result(
        measure=measure.measure,
        workload=measure.workload,
        peer=measure.peer,
        ratio=median(ratios),
        ratio_min=min(ratios),
        ratio_max=max(ratios),
        ours_s=median([ours for ours, _ in pairs]),
        peer_s=median([theirs for _, theirs in pairs]),
    )


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
    )
    trainer.fit(module, datamodule=data)
    return median(times.seconds[WARM_UP:])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=8)
    options = parser.parse_args()
    register()
    be_quiet()
    results = [run_measure(measure, repeats=options.repeats, steps=options.steps) for measure in MEASURES]
    write_json(OUTPUT, [asdict(result) for result in results])
    table = Table(title="seconds of ours over seconds of the peer, on the same work")
    for column in ("measure", "workload", "peer", "ratio", "from", "to"):
        table.add_column(column)
    for result in results:
        ratios = [f"{value:.3f}" for value in (result.ratio, result.ratio_min, result.ratio_max)]
        table.add_row(result.measure, result.workload, result.peer, *ratios)
    Console().print(table)
    print(f"Written: {OUTPUT}")


if __name__ == "__main__":
    main()

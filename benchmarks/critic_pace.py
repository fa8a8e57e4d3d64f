"""How fast critics train: the pairs that each reads in a second of one core's time, without a trainer around it.

    python -m benchmarks.critic_pace

A pair is an anchor with its goal. A critic that is asked about every goal of the batch scores many more.
"""

from __future__ import annotations

from statistics import median
from time import process_time
from typing import Any

import torch
from hydra import compose, initialize_config_module
from omegaconf import DictConfig

from contrastive_reasoning.critics import rows_of
from experiments.assemble import build
from experiments.schema import register

WARM_UP = 5
"""First steps, which are not counted."""
STEPS = 40
CRITICS = ("critic_numeric_v1", "critic_numeric_v2", "critic_joint")
FEW = "budget.critic.trajectories=2000"
"""Enough for the batches that are read; making them all would take longer than the measurement."""


def critic_pairs_per_second(config: DictConfig, *, steps: int, autocast: torch.dtype | None) -> float:
    """Anchors of a batch over the median of ``steps`` steps: batch, forward, loss, backward, optimizer.

    The time is that of the process, so that a busy machine slows it less. ``autocast`` is the dtype of forward and
    loss; None for full precision.
    """
    module, data = build(config, "pretraining"), build(config, "datamodule")
    optimizer = module.configure_optimizers()["optimizer"]
    seconds, anchors = [], 0
    for number in range(WARM_UP + steps):
        start = process_time()
        anchors = train_step(module, optimizer, data.batch(number), autocast)
        seconds.append(process_time() - start)
    return anchors / median(seconds[WARM_UP:])


def train_step(module: Any, optimizer: torch.optim.Optimizer, batch: Any, autocast: torch.dtype | None) -> int:
    """One update on all pairs of the batch; how many anchors it has."""
    with torch.autocast("cpu", dtype=autocast or torch.bfloat16, enabled=autocast is not None):
        scores = module.critic(batch.state_actions, batch.goals)
        loss = module.loss(scores, batch.positive, batch.candidate)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return rows_of(batch.state_actions)


def main() -> None:
    register()
    torch.set_num_threads(1)
    for critic in CRITICS:
        with initialize_config_module("conf", version_base="1.3"):
            config = compose("config", [f"experiment={critic}", FEW])
        for name, autocast in (("fp32", None), ("bf16", torch.bfloat16)):
            pace = critic_pairs_per_second(config, steps=STEPS, autocast=autocast)
            print(f"{critic} {name}: {pace:,.0f} pairs per second, in batches of {config.datamodule.batch_size}")


if __name__ == "__main__":
    main()

"""Whether ZeRO shards what it says it does, in bytes on each rank beside what they should be."""

from __future__ import annotations

from typing import Any

import lightning as L

from contrastive_reasoning.policies.sharding import expected_bytes
from contrastive_reasoning.ranks import gather

ROOM = "train/sharding/"


class ZeroSharding(L.Callback):
    """Logs ``train/sharding/<what>_megabytes`` and ``…_expected`` in the second step of a fit. Only watches.

    What: parameters, gradients, and the optimizer's state with its master weights, of the rank that has most of them.
    Under a strategy that shards nothing it has nothing to say.

    Args:
        tolerance: by how much more than the expected share a rank may hold, for padding.

    Raises:
        RuntimeError: while training, where a rank holds more, or deepspeed runs another stage.
        ValueError: for a negative tolerance.
    """

    def __init__(self, *, tolerance: float) -> None:
        if tolerance < 0:
            raise ValueError(f"callbacks.zero_sharding.tolerance must not be negative, got {tolerance}")
        self.tolerance = tolerance
        self._steps = 0

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._steps = 0

    def on_before_optimizer_step(self, trainer: L.Trainer, pl_module: L.LightningModule, optimizer: Any) -> None:
        """Look once, when the optimizer has its state and the gradients are there."""
        strategy: Any = trainer.strategy
        stage = getattr(strategy, "stage", None)
        self._steps += 1
        if stage is None or self._steps != 2:
            return
        running = strategy.deepspeed_engine.zero_optimization_stage()
        if running != stage:
            raise RuntimeError(f"trainer.strategy.stage is {stage}, but deepspeed runs stage {running}")
        step = int(getattr(pl_module, "rollout_step", trainer.global_step))
        expected = expected_bytes(pl_module, stage=stage, ranks=trainer.world_size)
        for what, held in strategy.bytes_held().items():
            most = max(gather(held))
            if most > expected[what] * (1 + self.tolerance):
                raise RuntimeError(
                    f"ZeRO-{stage} should leave {expected[what]:,} bytes of {what} on each of {trainer.world_size} "
                    f"ranks, one holds {most:,}"
                )
            values = {f"{what}_megabytes": most / 2**20, f"{what}_expected": expected[what] / 2**20}
            for logger in trainer.loggers:
                logger.log_metrics({ROOM + name: value for name, value in values.items()}, step=step)

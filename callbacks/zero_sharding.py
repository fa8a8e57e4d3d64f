"""Whether ZeRO shards as it should: bytes on each rank beside the expected ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import lightning as L

from callbacks.system_metrics import MEGABYTE
from contrastive_reasoning.distributed import gather
from contrastive_reasoning.policies.sharding import expected_bytes
from contrastive_reasoning.progress import steps_done


class ZeroSharding(L.Callback):
    """Logs ``train/sharding/<what>_megabytes`` and ``…_expected`` of the second optimizer step of a fit. Only watches.

    What: parameters, gradients, and the optimizer's state with its master weights, of the rank that has most of them.
    Parameters are counted when the batch has ended, whole ones too: within a step some are whole because they are read.
    Under a strategy that shards nothing it logs nothing.

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
        self._begin()

    def _begin(self) -> None:
        self._steps = 0
        self._due = False
        """Whether parameters are to be counted at the end of this batch."""

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._begin()

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
        self._compare(trainer, pl_module, strategy.bytes_held())
        self._due = True

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *_: Any) -> None:
        """Look once at the parameters, when nothing is being read."""
        if self._due:
            strategy: Any = trainer.strategy
            self._compare(trainer, pl_module, {"parameters": strategy.parameter_bytes_held()})
        self._due = False

    def _compare(self, trainer: L.Trainer, pl_module: L.LightningModule, all_held: Mapping[str, int]) -> None:
        strategy: Any = trainer.strategy
        step = steps_done(trainer, pl_module)
        shared: dict[str, int] = {"stage": strategy.stage, "ranks": trainer.world_size}
        expected = expected_bytes(pl_module, **shared, whole_elements=strategy.whole_elements)
        for what, held in all_held.items():
            most = max(gather(held))
            if most > expected[what] * (1 + self.tolerance):
                raise RuntimeError(
                    f"ZeRO-{strategy.stage} should leave {expected[what]:,} bytes of {what} on each of "
                    f"{trainer.world_size} ranks, one holds {most:,}"
                )
            values = {f"{what}_megabytes": most / MEGABYTE, f"{what}_expected": expected[what] / MEGABYTE}
            for logger in trainer.loggers:
                logger.log_metrics({f"train/sharding/{name}": value for name, value in values.items()}, step=step)

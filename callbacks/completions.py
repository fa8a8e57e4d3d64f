"""What the policy writes on the same few validation problems, as a table each time it is validated."""

from __future__ import annotations

from typing import Any

import lightning as L

from contrastive_reasoning.rollout.spans import readable
from contrastive_reasoning.tasks.base import Task

TABLE = "val/completions"


class Completions(L.Callback):
    """Logs the greedy completions of the first ``problems`` validation problems with their verdicts. Only watches."""

    def __init__(self, *, task: Task, problems: int) -> None:
        if problems < 1:
            raise ValueError(f"callbacks.completions.problems must be at least 1, got {problems}")
        self.task = task
        self.problems = problems
        self.rows: list[dict[str, Any]] = []

    def on_validation_epoch_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        self.rows = []

    def on_validation_batch_end(
        self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Keep the rows of this batch that are among the first problems."""
        for row, problem in enumerate(batch.problems[: self.problems - len(self.rows)]):
            text = batch.rollouts.texts[row * batch.rollouts.group_size]
            verdict = self.task.verify(problem, text)
            self.rows.append(
                {
                    "problem": problem.id,
                    "prompt": problem.prompt,
                    "answer": problem.answer,
                    "completion": readable(text),
                    "status": verdict.status,
                    "reason": verdict.reason,
                }
            )

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        """Hand the table to every logger that takes tables."""
        if trainer.sanity_checking:
            return
        for logger in trainer.loggers:
            if hasattr(logger, "log_table"):
                logger.log_table(TABLE, self.rows, step=int(pl_module.rollout_step))  # pyright: ignore

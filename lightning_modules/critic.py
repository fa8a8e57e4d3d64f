"""Contrastive pretraining of a critic.

    scores = f(sᵢ, aᵢ, gⱼ)                       all pairs of the batch, or the positives and some drawn negatives
    L      = loss(scores / τ, positive, candidate)

Held-out states with the exact oracle's answer come in a second validation loader.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import lightning as L
import torch
from torch import Tensor, nn

from contrastive_reasoning.critics import CriticBatch, CriticOracleBatch, rows_of, take
from contrastive_reasoning.losses import ContrastiveLoss
from contrastive_reasoning.losses.pairs import draw_negatives
from contrastive_reasoning.rollout.sampling import derived_seed
from lightning_modules.critic_metrics import OracleMetrics, batch_metrics
from lightning_modules.optim import AdamW

VERSION = 1


class CriticPretraining(L.LightningModule):
    """Trains ``critic`` with ``loss`` by automatic optimization.

    Args:
        critic: any ``Critic``; it is the only thing trained.
        loss: scores, positive, candidate → scalar.
        optimizer: of the critic's weights, with its schedule.
        negatives_per_anchor: negatives drawn per anchor and step where all pairs are too dear; None scores all pairs.
        seed: of those draws, which are a function of (seed, step, rank).

    Raises:
        ValueError: ``negatives_per_anchor`` is below 1.
    """

    def __init__(
        self,
        *,
        critic: nn.Module,
        loss: ContrastiveLoss,
        optimizer: AdamW,
        negatives_per_anchor: int | None,
        seed: int,
    ) -> None:
        super().__init__()
        if negatives_per_anchor is not None and negatives_per_anchor < 1:
            raise ValueError(f"negatives_per_anchor must be at least 1 or null, got {negatives_per_anchor}")
        self.critic = critic
        self.loss = loss
        self.optimizer = optimizer
        self.negatives_per_anchor = negatives_per_anchor
        self.seed = seed
        self.oracle_metrics = OracleMetrics()
        self._last_batch_end: float | None = None

    def training_step(self, batch: CriticBatch, batch_idx: int) -> Tensor:
        loss, metrics = self._loss_and_metrics(batch, "train", self.global_step)
        anchors = rows_of(batch.state_actions)
        self.log("train/critic/loss", loss.detach(), prog_bar=True, batch_size=anchors)
        self.log_dict({f"train/critic/{name}": value for name, value in metrics.items()}, batch_size=anchors)
        return loss

    def validation_step(self, batch: CriticBatch | CriticOracleBatch, batch_idx: int, dataloader_idx: int = 0) -> None:
        if isinstance(batch, CriticOracleBatch):
            scores = self.critic.pairs(batch.state_actions, batch.goals)  # pyright: ignore[reportCallIssue]
            self.oracle_metrics.update(scores / self.loss.temperature, batch)
            return
        loss, metrics = self._loss_and_metrics(batch, "validation", batch_idx)
        metrics = {"loss": loss, "categorical_accuracy": metrics["categorical_accuracy"]}
        named = {f"val/critic/{name}": value for name, value in metrics.items()}
        self.log_dict(named, batch_size=rows_of(batch.state_actions), add_dataloader_idx=False, sync_dist=True)

    def on_validation_epoch_end(self) -> None:
        self.log_dict({f"val/oracle/{name}": value.float() for name, value in self.oracle_metrics.compute().items()})

    def on_train_start(self) -> None:
        self._last_batch_end = perf_counter()

    def on_train_batch_end(self, outputs: Any, batch: CriticBatch, batch_idx: int) -> None:
        """Log how many state–action–goal pairs are read per second, loading included."""
        now, before = perf_counter(), self._last_batch_end
        self._last_batch_end = now
        if before is not None:
            rate = rows_of(batch.state_actions) * self.trainer.world_size / max(now - before, 1e-9)
            self.log("train/throughput/pairs_per_second", rate, batch_size=1)

    def on_validation_end(self) -> None:
        self._last_batch_end = perf_counter()

    def configure_optimizers(self) -> Any:
        optimizer = self.optimizer(self.critic.parameters())
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": self.optimizer.scheduler(optimizer), "interval": "step"},
        }

    def _loss_and_metrics(self, batch: CriticBatch, purpose: str, step: int) -> tuple[Tensor, dict[str, Tensor]]:
        counts = self._counted(batch, purpose, step)
        scores = self._scores(batch, counts)
        metrics = batch_metrics(scores / self.loss.temperature, batch.positive, counts)
        return self.loss(scores, batch.positive, counts), metrics

    def _counted(self, batch: CriticBatch, purpose: str, step: int) -> Tensor:
        """The pairs that are scored: (A, C) bool."""
        if self.negatives_per_anchor is None:
            return batch.candidate
        seed = derived_seed((self.seed, "critic negatives", purpose, step, self.global_rank))
        generator = torch.Generator().manual_seed(seed)
        return draw_negatives(batch.positive, batch.candidate, count=self.negatives_per_anchor, generator=generator)

    def _scores(self, batch: CriticBatch, counts: Tensor) -> Tensor:
        """f for all pairs, or for the counted ones with 0 elsewhere: (A, C)."""
        if self.negatives_per_anchor is None:
            return self.critic(batch.state_actions, batch.goals)
        anchors, goals = counts.nonzero(as_tuple=True)
        values = self.critic.pairs(  # pyright: ignore[reportCallIssue]
            take(batch.state_actions, anchors), take(batch.goals, goals)
        )
        return values.new_zeros(counts.shape).index_put((anchors, goals), values)

"""Contrastive pretraining of a critic.

    scores = f(sᵢ, aᵢ, gⱼ)                       all pairs of the batch, or the positives and some drawn negatives
    L      = loss(scores / τ, positive, candidate)

Each member of an ensemble has its own loss, its own bootstrap of the anchors and its own negatives. Held-out states
with the exact oracle's labels come in a second validation loader.

Every rank has the whole batch, scores its own anchors against all goals, and computes the loss of all ranks' scores:

            goals of the batch
    rank 0  ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓ ─┐
    rank 1  ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒ ─┴─ gathered ──► one loss of A × C scores, symmetric ones too
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from contrastive_reasoning.critics import CriticBatch, CriticOracleBatch, members_of, rows_of, take
from contrastive_reasoning.distributed import all_rows, own_rows
from contrastive_reasoning.losses import ContrastiveLoss
from contrastive_reasoning.losses.masked import draw_negatives
from contrastive_reasoning.policies.sharding import gathered
from contrastive_reasoning.progress import step_is_logged
from contrastive_reasoning.ranges import at_least
from contrastive_reasoning.rollout.sampling import derived_seed
from lightning_modules.metrics import OracleMetrics, batch_metrics
from lightning_modules.optim import AdamW, FiniteSteps, nan_unless_finite


class CriticPretraining(FiniteSteps):
    """Trains ``critic`` with ``loss`` by automatic optimization.

    The other arguments are those of ``FiniteSteps``.

    Args:
        critic: any ``Critic``; the only part that is trained.
        loss: scores, positive, candidate → scalar.
        negatives_per_anchor: negatives drawn per anchor and step, if all pairs cost too much; None scores all pairs.
        seed: of those draws and of dropout; draws are a function of (seed, step).

    Raises:
        ValueError: if ``negatives_per_anchor`` is below 1.
    """

    def __init__(
        self,
        *,
        critic: nn.Module,
        loss: ContrastiveLoss,
        optimizer: AdamW,
        negatives_per_anchor: int | None,
        seed: int,
        gradient_clip: float | None,
        max_skipped_steps: int,
    ) -> None:
        super().__init__(
            optimizer=optimizer, seed=seed, gradient_clip=gradient_clip, max_skipped_steps=max_skipped_steps
        )
        if negatives_per_anchor is not None:
            at_least(1, negatives_per_anchor=negatives_per_anchor)
        self.critic = critic
        self.loss = loss
        self.negatives_per_anchor = negatives_per_anchor
        self.oracle_metrics = OracleMetrics()
        self._last_batch_end: float | None = None

    def training_step(self, batch: CriticBatch, batch_idx: int) -> Tensor:
        with self.dropout("critic dropout"):
            loss, metrics = self._training_loss(batch)
        anchors = rows_of(batch.state_actions)
        if step_is_logged(self.trainer) and loss.isfinite():
            mean = loss.detach() / len(members_of(self.critic))
            self.log("train/critic/loss", mean, prog_bar=True, batch_size=anchors)
            self.log_dict({f"train/critic/{name}": value for name, value in metrics.items()}, batch_size=anchors)
        return nan_unless_finite(loss)

    def validation_step(self, batch: CriticBatch | CriticOracleBatch, batch_idx: int, dataloader_idx: int = 0) -> None:
        with gathered(self.critic):
            if isinstance(batch, CriticOracleBatch):
                pairs: Any = self.critic.pairs
                own = own_rows(len(batch.label)).to(batch.label.device)
                scores = all_rows(pairs(take(batch.state_actions, own), take(batch.goals, own)), len(batch.label))
                self.oracle_metrics.update(scores / self.loss.temperature, batch)
                return
            loss, metrics = self._loss_and_metrics(batch, "validation", batch_idx)
        metrics = {"loss": loss, "categorical_accuracy": metrics["categorical_accuracy"]}
        named = {f"val/critic/{name}": value for name, value in metrics.items()}
        self.log_dict(named, batch_size=rows_of(batch.state_actions), add_dataloader_idx=False)

    def on_validation_epoch_end(self) -> None:
        self.log_dict({f"val/oracle/{name}": value.float() for name, value in self.oracle_metrics.compute().items()})

    def on_train_start(self) -> None:
        self._last_batch_end = perf_counter()

    def on_train_batch_end(self, outputs: Any, batch: CriticBatch, batch_idx: int) -> None:
        """Logs how many state–action–goal pairs are read per second, loading included."""
        now, before = perf_counter(), self._last_batch_end
        self._last_batch_end = now
        if before is not None and step_is_logged(self.trainer):
            rate = rows_of(batch.state_actions) / max(now - before, 1e-9)
            self.log("train/throughput/pairs_per_second", rate, batch_size=1)

    def on_validation_end(self) -> None:
        self._last_batch_end = perf_counter()

    def _training_loss(self, batch: CriticBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """The sum of the members' losses, and the mean of the logged metrics over the members."""
        members = members_of(self.critic)
        if len(members) == 1:
            return self._loss_and_metrics(batch, "train", self.global_step)
        found = [
            self._loss_and_metrics(self._bootstrapped(batch, index), f"train member {index}", self.global_step, member)
            for index, member in enumerate(members)
        ]
        columns = {name: torch.stack([metrics[name] for _, metrics in found]) for name in found[0][1]}
        # the sum: members share no weights, so each member's gradient is that of its own loss
        return torch.stack([loss for loss, _ in found]).sum(), {name: c.mean() for name, c in columns.items()}

    def _bootstrapped(self, batch: CriticBatch, member: int) -> CriticBatch:
        """The same number of anchors, drawn with replacement, each with its own row of pairs."""
        seed = derived_seed((self.seed, "critic bootstrap", self.global_step, member))
        generator = torch.Generator().manual_seed(seed)
        rows = torch.randint(len(batch.positive), (len(batch.positive),), generator=generator).to(batch.positive.device)
        return CriticBatch(
            state_actions=take(batch.state_actions, rows),
            goals=batch.goals,
            positive=batch.positive[rows],
            candidate=batch.candidate[rows],
        )

    def _loss_and_metrics(
        self, batch: CriticBatch, purpose: str, step: int, critic: nn.Module | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        counts = self.counted(batch, purpose, step)
        scores = self._scores(batch, counts, critic)
        metrics = batch_metrics(scores / self.loss.temperature, batch.positive, counts)
        return self.loss(scores, batch.positive, counts), metrics

    def counted(self, batch: CriticBatch, purpose: str, step: int) -> Tensor:
        """The pairs that are scored in a step of ``"train"`` or ``"validation"``: (A, C) bool."""
        if self.negatives_per_anchor is None:
            return batch.candidate
        seed = derived_seed((self.seed, "critic negatives", purpose, step))
        generator = torch.Generator().manual_seed(seed)
        return draw_negatives(batch.positive, batch.candidate, count=self.negatives_per_anchor, generator=generator)

    def _scores(self, batch: CriticBatch, counts: Tensor, critic: nn.Module | None = None) -> Tensor:
        """f, of a member or of the whole critic, for all pairs, or for the counted ones with 0 elsewhere: (A, C)."""
        own = own_rows(len(counts)).to(counts.device)
        state_actions, counted = take(batch.state_actions, own), counts[own]
        scorer: Any = self.critic if critic is None else critic
        if self.negatives_per_anchor is None:
            block = scorer(state_actions, batch.goals)
        else:
            anchors, chosen = counted.nonzero(as_tuple=True)
            values = scorer.pairs(take(state_actions, anchors), take(batch.goals, chosen))
            block = values.new_zeros(counted.shape).index_put((anchors, chosen), values)
        return all_rows(block, len(counts))

"""Numbers beside the pictures: how the goals lie in the critic's space, and whether parity is what orders them."""

from __future__ import annotations

from typing import Any

import lightning as L
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from callbacks.similarity_heatmap import positive_diagonal
from contrastive_reasoning.critics import CriticBatch, take
from contrastive_reasoning.geometry import alignment, effective_rank, parity_accuracy, parity_of, uniformity
from contrastive_reasoning.policies.sharding import gathered


class GeometryProbe(L.Callback):
    """Logs of the first batch of each validation, under ``val/probe/``: ``parity_from_components`` (goals that are
    numbers), ``alignment`` and ``positive_cosine`` of positive pairs, ``uniformity`` and ``effective_rank`` of the
    goals. Only watches.

    Args:
        components: principal components from which parity is read.
        folds: of the cross-validation.
    """

    def __init__(self, *, components: int, folds: int) -> None:
        self.components = components
        self.folds = folds

    def on_validation_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        if batch_idx or not isinstance(batch, CriticBatch) or not hasattr(pl_module.critic, "encode_goal"):
            return
        with gathered(pl_module.critic):
            measured = self.measure(pl_module.critic, batch)
        for name, value in measured.items():
            pl_module.log(f"val/probe/{name}", value, batch_size=1, add_dataloader_idx=False)

    @torch.no_grad()
    def measure(self, critic: Any, batch: CriticBatch) -> dict[str, Tensor | float]:
        """The numbers by name; what cannot be measured on this batch is absent."""
        goals = critic.encode_goal(batch.goals).float()
        rows, columns = positive_diagonal(batch.positive, len(batch.positive))
        measured: dict[str, Tensor | float] = {}
        if len(rows):
            anchors = critic.encode_state_action(take(batch.state_actions, rows)).float()
            measured["alignment"] = alignment(anchors, goals[columns])
            measured["positive_cosine"] = cosine_similarity(anchors, goals[columns]).mean()
        if len(goals) > 1:
            measured |= {"uniformity": uniformity(goals), "effective_rank": effective_rank(goals)}
        if isinstance(batch.goals, Tensor):
            parity = parity_of(batch.goals.cpu())
            accuracy = parity_accuracy(goals.cpu(), parity, components=self.components, folds=self.folds)
            if accuracy == accuracy:  # NaN where one parity is missing
                measured["parity_from_components"] = accuracy
        return measured

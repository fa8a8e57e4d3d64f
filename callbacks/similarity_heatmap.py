"""The published 16×16 picture of a critic: state–actions against goals, positives on the diagonal."""

from __future__ import annotations

from typing import Any

import lightning as L
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import normalize

from callbacks.figures import log_figure, watching
from contrastive_reasoning.critics import CriticBatch, take
from contrastive_reasoning.policies.sharding import gathered


class SimilarityHeatmap(L.Callback):
    """At the end of each validation: cosine of the embeddings as published, and f itself beside it.

    Critics without embeddings (no ``encode_state_action``) show f alone. Only watches.

    Args:
        size: rows and columns at most; each row has its own positive in the same column.

    Raises:
        ValueError: if ``size`` is below 2.
    """

    def __init__(self, *, size: int) -> None:
        if size < 2:
            raise ValueError(f"SimilarityHeatmap: size must be at least 2, got {size}")
        self.size = size
        self._batch: CriticBatch | None = None

    def on_validation_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        if batch_idx == 0 and isinstance(batch, CriticBatch):
            self._batch = batch

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        batch, self._batch = self._batch, None
        if batch is not None:
            with gathered(pl_module.critic):
                if watching(trainer):
                    self._draw(trainer, pl_module, batch)

    def _draw(self, trainer: L.Trainer, pl_module: L.LightningModule, batch: CriticBatch) -> None:
        rows, columns = positive_diagonal(batch.positive, self.size)
        if len(rows) > 1:
            state_actions, goals = take(batch.state_actions, rows), take(batch.goals, columns)
            positive = batch.positive[rows][:, columns].cpu()
            figure = heatmaps(similarities(pl_module.critic, state_actions, goals), positive, trainer.global_step)
            log_figure(trainer, "critic/similarity", figure, trainer.global_step)


def positive_diagonal(positive: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """At most ``size`` rows spread over the batch, and for each a column that is positive for it, none twice.

    Args:
        positive: (A, C) bool.
        size: how many are wanted.

    Returns:
        Row and column indices, equally many.
    """
    rows: list[int] = []
    columns: list[int] = []
    for row in _spread(positive.any(dim=1).nonzero().flatten().tolist()):
        free = [column for column in positive[row].nonzero().flatten().tolist() if column not in columns]
        if free and len(rows) < size:
            rows.append(row)
            columns.append(free[0])
    return (
        torch.tensor(rows, dtype=torch.long, device=positive.device),
        torch.tensor(columns, dtype=torch.long, device=positive.device),
    )


def _spread(rows: list[int]) -> list[int]:
    """All rows, in strides: the batch may be ordered by depth, and each depth should show."""
    stride = max(1, round(len(rows) ** 0.5))
    return [row for start in range(stride) for row in rows[start::stride]]


@torch.no_grad()
def similarities(critic: Any, state_actions: Any, goals: Any) -> dict[str, Tensor]:
    """(A, C) matrices by title."""
    matrices = {}
    if hasattr(critic, "encode_state_action"):
        anchors, candidates = critic.encode_state_action(state_actions), critic.encode_goal(goals)
        matrices["cosine of φ(s, a) and ψ(g)"] = (
            normalize(anchors.float(), dim=1) @ normalize(candidates.float(), dim=1).T
        )
    matrices["critic value f(s, a, g)"] = critic(state_actions, goals).float()
    return {title: matrix.cpu() for title, matrix in matrices.items()}


def heatmaps(matrices: dict[str, Tensor], positive: Tensor, step: int) -> Figure:
    """One panel a matrix; dots mark pairs known to be positive, on the diagonal and off it."""
    figure = Figure(figsize=(5.6 * len(matrices), 5.2), layout="constrained")
    axes = figure.subplots(1, len(matrices), squeeze=False)[0]
    for panel, (title, matrix) in zip(axes, matrices.items(), strict=True):
        _heatmap(panel, title, matrix, positive)
    figure.suptitle(f"State–actions against goals, step {step:,} (dots: known positives)")
    return figure


def _heatmap(panel: Axes, title: str, matrix: Tensor, positive: Tensor) -> None:
    # a cosine has a zero and two ends; the level of f means nothing, its order does
    scale: dict[str, Any] = {"cmap": "cividis"}
    if title.startswith("cosine"):
        scale = {"cmap": "PuOr_r", "vmin": -1.0, "vmax": 1.0}
    image = panel.imshow(matrix.numpy(), **scale)
    rows, columns = positive.nonzero(as_tuple=True)
    panel.scatter(columns.numpy(), rows.numpy(), s=18, c="black", edgecolors="white", linewidths=0.7)
    panel.set(title=title, xlabel="goal", ylabel="state–action")
    panel.figure.colorbar(image, ax=panel, shrink=0.85)

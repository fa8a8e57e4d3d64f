"""Where the contrastive head puts a batch's completions: PCA and t-SNE, correct against incorrect (CLIPO's figure)."""

from __future__ import annotations

from typing import Any

import lightning as L
import torch
from jaxtyping import Bool, Float
from matplotlib.figure import Figure
from torch import Tensor

from callbacks.figures import BELOW, log_figure, watching
from contrastive_reasoning.geometry import pca, tsne
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.tasks.base import Task

FIGURE = "clipo/completions"
CLASSES = ((False, "incorrect", "#D55E00", "X"), (True, "correct", "#009E73", "o"))
"""Red and green of a palette that colour-blind readers tell apart, and two shapes."""


class CompletionProjection(L.Callback):
    """Draws the completions of the first training batch and of every ``every``-th. Only watches.

    Rewards that embed nothing, such as the verifier's, are left out.

    Args:
        task: says which completions are correct.
        points: completions drawn at most, whole groups from the beginning of the batch.
        every: rollout batches from one picture to the next.
        perplexity: of t-SNE.
        seed: of t-SNE.

    Raises:
        ValueError: if ``points`` is below 4 or ``every`` below 1.
    """

    def __init__(self, *, task: Task, points: int, every: int, perplexity: float, seed: int) -> None:
        if points < 4:
            raise ValueError(f"CompletionProjection: points must be at least 4, got {points}")
        if every < 1:
            raise ValueError(f"CompletionProjection: every must be at least 1, got {every}")
        self.task = task
        self.points = points
        self.every = every
        self.perplexity = perplexity
        self.seed = seed

    @torch.no_grad()
    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        step = int(pl_module.rollout_step)
        due = step == 1 or step % self.every == 0
        if not due or not watching(trainer) or not hasattr(pl_module.reward, "embed"):
            return
        embeddings = pl_module.reward.embed(batch.rollouts).float().cpu()[: self.points]
        correct = self.correct(batch.rollouts, len(embeddings))
        if len(embeddings) >= 4:
            log_figure(trainer, FIGURE, self.figure(embeddings, correct, step), step)

    def correct(self, rollouts: RolloutBatch, count: int) -> Bool[Tensor, " N"]:
        """Whether each of the first completions is right."""
        verdicts = [self.task.verify(rollouts.problem_of(row), rollouts.texts[row]) for row in range(count)]
        return torch.tensor([verdict.correct for verdict in verdicts])

    def figure(self, embeddings: Float[Tensor, "N D"], correct: Bool[Tensor, " N"], step: int) -> Figure:
        """The two projections beside each other."""
        figure = Figure(figsize=(10.4, 4.8), layout="constrained")
        left, right = figure.subplots(1, 2)
        principal = pca(embeddings, components=2)
        shares = [f"component {k + 1} ({share:.0%} of variance)" for k, share in enumerate(principal.explained)]
        left.set(title="PCA", xlabel=shares[0], ylabel=shares[1])
        right.set(title="t-SNE", xlabel="dimension 1", ylabel="dimension 2")
        neighbours = tsne(embeddings, perplexity=self.perplexity, seed=self.seed)
        for panel, points in ((left, principal.points), (right, neighbours)):
            for member, name, colour, marker in CLASSES:
                x, y = points[correct == member].T.numpy()
                panel.scatter(x, y, s=20, c=colour, marker=marker, alpha=0.7, linewidths=0, label=f"{name} ({len(x)})")
            panel.legend(**BELOW)
        figure.suptitle(f"{len(embeddings)} completions in the contrastive space, step {step:,}")
        return figure

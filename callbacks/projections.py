"""Figures of embeddings by PCA and t-SNE: a critic's goals and states, and the completions in CLIPO's space."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import lightning as L
import torch
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from callbacks.figures import LABEL_COLOURS, LEGEND_BELOW, PARITY_COLOURS, due, log_figure, watching
from contrastive_reasoning.critics import CriticBatch, CriticOracleBatch
from contrastive_reasoning.geometry import parity_of, pca, tsne
from contrastive_reasoning.policies.sharding import gathered
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.tasks.base import Task


class EmbeddingProjection(L.Callback):
    """At the end of each validation, two figures: the goals of the batch, and the held-out states. Only watches.

    Critics without embeddings are left out; goals that are text are not coloured.

    Args:
        points: states and goals drawn at most, of each.
        perplexity: of t-SNE.
        seed: of t-SNE.

    Raises:
        ValueError: if ``points`` is below 4.
    """

    def __init__(self, *, points: int, perplexity: float, seed: int) -> None:
        if points < 4:
            raise ValueError(f"EmbeddingProjection: points must be at least 4, got {points}")
        self.points = points
        self.perplexity = perplexity
        self.seed = seed
        self._goals: list[tuple[Tensor, Any]] = []
        self._states: list[tuple[Tensor, Tensor]] = []

    @torch.no_grad()
    def on_validation_batch_end(
        self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        with gathered(pl_module.critic):
            if watching(trainer) and hasattr(pl_module.critic, "encode_goal"):
                self._embed(pl_module.critic, batch)

    def _embed(self, critic: Any, batch: Any) -> None:
        if isinstance(batch, CriticBatch) and count_of(self._goals) < self.points:
            values = batch.goals.cpu() if isinstance(batch.goals, Tensor) else None
            self._goals.append((critic.encode_goal(batch.goals).float().cpu(), values))
        elif isinstance(batch, CriticOracleBatch) and count_of(self._states) < self.points:
            embeddings = critic.encode_state_action(batch.state_actions).float().cpu()
            self._states.append((embeddings, batch.label.cpu()))

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        goals, states = self._goals, self._states
        self._goals, self._states = [], []
        step = trainer.global_step
        if count_of(goals) >= 4:
            log_figure(trainer, "critic/goals", self._goal_figure(goals, step), step)
        if count_of(states) >= 4:
            log_figure(trainer, "critic/states", self._state_figure(states, step), step)

    def _goal_figure(self, goals: list[tuple[Tensor, Any]], step: int) -> Figure:
        embeddings = torch.cat([embedding for embedding, _ in goals])
        if goals[0][1] is None:
            return self._figure(embeddings[: self.points], {"": None}, f"Goal embeddings, step {step:,}")
        values, first = distinct_rows(torch.cat([value for _, value in goals]))
        kept = first.argsort()[: self.points]  # in their order in the batches: sorted, the largest would be cut off
        values, embeddings = values[kept], embeddings[first[kept]]
        colours = {
            "parity of the goal's sum": parity_of(values),
            "sum of the goal": values.reshape(len(values), -1).clamp(min=0).sum(dim=1),
        }
        return self._figure(embeddings, colours, f"{len(embeddings)} goal embeddings, step {step:,}")

    def _state_figure(self, states: list[tuple[Tensor, Tensor]], step: int) -> Figure:
        embeddings = torch.cat([embedding for embedding, _ in states])[: self.points]
        label = torch.cat([label for _, label in states])[: self.points]
        title = f"{len(embeddings)} embeddings of held-out states, step {step:,}"
        return self._figure(embeddings, {"the problem's target is": label}, title)

    def _figure(self, embeddings: Tensor, colours: Mapping[str, Tensor | None], title: str) -> Figure:
        rows = [partial(scatter, meaning=meaning, values=values) for meaning, values in colours.items()]
        return projections(embeddings, rows, title=title, perplexity=self.perplexity, seed=self.seed)


class CompletionProjection(L.Callback):
    """Draws the completions of the first training batch and of every ``every``-th (CLIPO's figure). Only watches.

    Rewards that embed nothing, such as the verifier's, draw nothing.

    Args:
        task: verifies them.
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
        if not due(step, self.every) or not watching(trainer) or not hasattr(pl_module.reward, "embed"):
            return
        embeddings = pl_module.reward.embed(batch.rollouts).float().cpu()[: self.points]
        correct = self.correct(batch.rollouts, len(embeddings))
        if len(embeddings) >= 4:
            log_figure(trainer, "clipo/completions", self.figure(embeddings, correct, step), step)

    def correct(self, rollouts: RolloutBatch, count: int) -> Bool[Tensor, " N"]:
        """Whether each of the first completions is correct."""
        verdicts = [self.task.verify(rollouts.problem_of(row), rollouts.texts[row]) for row in range(count)]
        return torch.tensor([verdict.correct for verdict in verdicts])

    def figure(self, embeddings: Float[Tensor, "N D"], correct: Bool[Tensor, " N"], step: int) -> Figure:
        title = f"{len(embeddings)} completions in the contrastive space, step {step:,}"
        rows = [partial(scatter_verdicts, correct=correct)]
        return projections(embeddings, rows, title=title, perplexity=self.perplexity, seed=self.seed)


def projections(
    embeddings: Float[Tensor, "N D"],
    rows: Sequence[Callable[[Axes, Tensor], None]],
    *,
    title: str,
    perplexity: float,
    seed: int,
) -> Figure:
    """PCA on the left, t-SNE on the right; each of ``rows`` draws both projections, (N, 2), in its own way."""
    figure = Figure(figsize=(10.4, 4.6 * len(rows)), layout="constrained")
    axes = figure.subplots(len(rows), 2, squeeze=False)
    principal = pca(embeddings, components=2)
    neighbours = tsne(embeddings, perplexity=perplexity, seed=seed)
    shares = [f"component {k + 1} ({share:.0%} of variance)" for k, share in enumerate(principal.explained)]
    for (left, right), draw in zip(axes, rows, strict=True):
        draw(left, principal.points)
        left.set(title="PCA", xlabel=shares[0], ylabel=shares[1])
        draw(right, neighbours)
        right.set(title="t-SNE", xlabel="dimension 1", ylabel="dimension 2")
    figure.suptitle(title)
    return figure


def scatter_verdicts(panel: Axes, points: Tensor, correct: Bool[Tensor, " N"]) -> None:
    """Correct and incorrect completions in two colours and two shapes."""
    for member, name, marker in ((False, "incorrect", "X"), (True, "correct", "o")):
        x, y = points[correct == member].T.numpy()
        label, colour = f"{name} ({len(x)})", LABEL_COLOURS[member]
        panel.scatter(x, y, s=20, c=colour, marker=marker, alpha=0.7, linewidths=0, label=label)
    panel.legend(**LEGEND_BELOW)


def scatter(panel: Axes, points: Tensor, meaning: str, values: Tensor | None) -> None:
    """Points coloured by two classes (bool), by a number with a colour bar, or all alike (None)."""
    x, y = points.T.numpy()
    if values is None:
        panel.scatter(x, y, s=14, c=PARITY_COLOURS[0], alpha=0.7, linewidths=0)
    elif values.dtype == torch.bool:
        names = ("even", "odd") if "parity" in meaning else ("out of reach", "reachable")
        palette = PARITY_COLOURS if "parity" in meaning else LABEL_COLOURS
        for member, marker in ((False, "o"), (True, "^")):
            chosen = (values == member).numpy()
            label = f"{names[member]} ({chosen.sum()})"
            panel.scatter(
                x[chosen], y[chosen], s=16, c=palette[member], marker=marker, alpha=0.7, linewidths=0, label=label
            )
        panel.legend(title=meaning, **LEGEND_BELOW)
    else:
        image = panel.scatter(x, y, s=16, c=values.numpy(), cmap="viridis", alpha=0.8, linewidths=0)
        panel.figure.colorbar(image, ax=panel, label=meaning)


def distinct_rows(values: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct rows, and the index at which each occurs first."""
    distinct, inverse = torch.unique(values, dim=0, return_inverse=True)
    first = torch.full((len(distinct),), len(values)).scatter_reduce(0, inverse, torch.arange(len(values)), "amin")
    return distinct, first


def count_of(parts: list[tuple[Tensor, Any]]) -> int:
    return sum(len(embeddings) for embeddings, _ in parts)

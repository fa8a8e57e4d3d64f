"""Figures of embeddings by PCA and t-SNE: a critic's goals and states, and completions in CLIPO's space."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import lightning as L
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from callbacks.figures import LABEL_COLOURS, PARITY_COLOURS, due, log_with, watching
from contrastive_reasoning.critics import CriticBatch, CriticOracleBatch
from contrastive_reasoning.geometry import distinct_rows, parity_of, pca, tsne
from contrastive_reasoning.policies.sharding import gathered
from contrastive_reasoning.ranges import at_least
from contrastive_reasoning.rewards.base import verdicts_on
from contrastive_reasoning.tasks.base import Task

CLASSES = {
    "parity of the goal's sum": (("even", "odd"), PARITY_COLOURS),
    "the problem's target is": (("out of reach", "reachable"), LABEL_COLOURS),
    "the completion is": (("incorrect", "correct"), LABEL_COLOURS),
}
"""Title of a legend → the names and colours of its False and True points."""
LEAST = 4
"""Minimum number of points to draw a figure."""


@dataclass(kw_only=True, eq=False)
class EmbeddingProjection(L.Callback):
    """Draws two figures at each validation in training, not before it: the batch's goals, and the held-out states.

    Only watches. Critics without embeddings are skipped; goals that are text are not coloured.

    Raises:
        ValueError: if ``points`` is below 4.
    """

    points: int
    """Maximum number of states and of goals drawn."""
    perplexity: float
    """Perplexity of t-SNE."""
    seed: int
    """Seed of t-SNE."""

    def __post_init__(self) -> None:
        at_least(LEAST, **{"callbacks.embedding_projection.points": self.points})
        self._goals: list[tuple[Tensor, Any]] = []
        self._states: list[tuple[Tensor, Tensor]] = []

    @torch.no_grad()
    def on_validation_batch_end(
        self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        critic = pl_module.critic
        with gathered(critic):
            if trainer.state.fn != "fit" or not watching(trainer) or not hasattr(critic, "encode_goal"):
                return
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
        if count_of(goals) >= LEAST:
            log_with(trainer, "log_figure", "critic/goals", self._goal_figure(goals, step), step)
        if count_of(states) >= LEAST:
            embeddings, label = (torch.cat(parts)[: self.points] for parts in zip(*states, strict=True))
            title = f"{len(embeddings)} embeddings of held-out states, step {step:,}"
            figure = self._figure(embeddings, {"the problem's target is": label}, title)
            log_with(trainer, "log_figure", "critic/states", figure, step)

    def _goal_figure(self, goals: list[tuple[Tensor, Any]], step: int) -> Figure:
        embeddings = torch.cat([embedding for embedding, _ in goals])
        if goals[0][1] is None:
            return self._figure(embeddings[: self.points], {"": None}, f"Goal embeddings, step {step:,}")
        values = torch.cat([value for _, value in goals])
        kept = distinct_rows(values)[: self.points]  # not sorted: the largest would be cut off
        values, embeddings = values[kept], embeddings[kept]
        colours = {
            "parity of the goal's sum": parity_of(values),
            "sum of the goal": values.reshape(len(values), -1).clamp(min=0).sum(dim=1),
        }
        return self._figure(embeddings, colours, f"{len(embeddings)} goal embeddings, step {step:,}")

    def _figure(self, embeddings: Tensor, colours: Mapping[str, Tensor | None], title: str) -> Figure:
        return projections(embeddings, colours, title=title, perplexity=self.perplexity, seed=self.seed)


@dataclass(kw_only=True, eq=False)
class CompletionProjection(L.Callback):
    """Draws the completions of the first training batch and of every ``every``-th (CLIPO's figure). Only watches.

    Rewards without embeddings, such as the verifier's, draw nothing.

    Raises:
        ValueError: if ``points`` is below 4 or ``every`` below 1.
    """

    task: Task
    """Verifies them if the reward does not."""
    points: int
    """Maximum number of completions drawn, from the beginning of the batch."""
    every: int
    perplexity: float
    """Perplexity of t-SNE."""
    seed: int
    """Seed of t-SNE."""

    def __post_init__(self) -> None:
        at_least(LEAST, **{"callbacks.completion_projection.points": self.points})
        at_least(1, **{"callbacks.completion_projection.every": self.every})

    @torch.no_grad()
    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        step = int(pl_module.rollout_step)
        if not due(step, self.every) or not watching(trainer):
            return
        if (credit := pl_module.result.credit) is None or not hasattr(pl_module.reward, "embed"):
            return
        embeddings = pl_module.reward.embed(batch.rollouts).float().cpu()[: self.points]
        if len(embeddings) >= LEAST:
            verdicts = verdicts_on(credit, self.task, batch.rollouts)[: len(embeddings)]
            correct = torch.tensor([verdict.correct for verdict in verdicts])
            title = f"{len(embeddings)} completions in the contrastive space, step {step:,}"
            settings: dict[str, Any] = {"title": title, "perplexity": self.perplexity, "seed": self.seed}
            figure = projections(embeddings, {"the completion is": correct}, **settings)
            log_with(trainer, "log_figure", "clipo/completions", figure, step)


def projections(
    embeddings: Float[Tensor, "N D"],
    colours: Mapping[str, Tensor | None],
    *,
    title: str,
    perplexity: float,
    seed: int,
) -> Figure:
    """PCA on the left, t-SNE on the right; one row of both for each meaning of the colours, with its values, (N,)."""
    figure = Figure(figsize=(10.4, 4.6 * len(colours)), layout="constrained")
    axes = figure.subplots(len(colours), 2, squeeze=False)
    principal = pca(embeddings, components=2)
    neighbours = tsne(embeddings, perplexity=perplexity, seed=seed)
    shares = [f"component {k + 1} ({share:.0%} of variance)" for k, share in enumerate(principal.explained)]
    for (left, right), (meaning, values) in zip(axes, colours.items(), strict=True):
        scatter(left, principal.points, meaning, values)
        left.set(title="PCA", xlabel=shares[0], ylabel=shares[1])
        scatter(right, neighbours, meaning, values)
        right.set(title="t-SNE", xlabel="dimension 1", ylabel="dimension 2")
    figure.suptitle(title)
    return figure


def scatter(panel: Axes, points: Tensor, meaning: str, values: Tensor | None) -> None:
    """Draws points coloured by two ``CLASSES`` (bool), by a number with a colour bar, or all alike (None)."""
    style: dict[str, Any] = {"s": 16, "alpha": 0.75, "linewidths": 0}
    if values is None:
        panel.scatter(*points.T.numpy(), c=PARITY_COLOURS[0], **style)
    elif values.dtype == torch.bool:
        names, palette = CLASSES[meaning]
        for member, marker in ((False, "X"), (True, "o")):
            chosen = points[values == member]
            label = f"{names[member]} ({len(chosen)})"
            panel.scatter(*chosen.T.numpy(), c=palette[member], marker=marker, label=label, **style)
        # below its panel, where it covers no points
        below: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.14), "borderaxespad": 0}
        panel.legend(title=meaning, ncols=2, frameon=False, **below)
    else:
        image = panel.scatter(*points.T.numpy(), c=values.numpy(), cmap="viridis", **style)
        panel.figure.colorbar(image, ax=panel, label=meaning)


def count_of(parts: list[tuple[Tensor, Any]]) -> int:
    return sum(len(embeddings) for embeddings, _ in parts)

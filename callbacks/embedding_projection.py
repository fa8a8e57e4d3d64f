"""Where a critic puts goals and states: PCA and t-SNE, coloured by parity, by goal and by reachability."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import lightning as L
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from callbacks.figures import BELOW, LABEL_COLOURS, PARITY_COLOURS, log_figure, watching
from contrastive_reasoning.critics import CriticBatch, CriticOracleBatch
from contrastive_reasoning.geometry import parity_of, pca, tsne
from contrastive_reasoning.policies.sharding import gathered


class EmbeddingProjection(L.Callback):
    """At the end of each validation, two pictures: the goals of the batch, and the held-out states. Only watches.

    Critics without embeddings are left out; goals that are text have no parity and no value to be coloured by.

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
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        with gathered(pl_module.critic):
            if watching(trainer) and hasattr(pl_module.critic, "encode_goal"):
                self._embed(pl_module.critic, batch)

    def _embed(self, critic: Any, batch: Any) -> None:
        if isinstance(batch, CriticBatch) and _gathered(self._goals) < self.points:
            values = batch.goals.cpu() if isinstance(batch.goals, Tensor) else None
            self._goals.append((critic.encode_goal(batch.goals).float().cpu(), values))
        elif isinstance(batch, CriticOracleBatch) and _gathered(self._states) < self.points:
            embeddings = critic.encode_state_action(batch.state_actions).float().cpu()
            self._states.append((embeddings, batch.label.cpu()))

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        goals, states = self._goals, self._states
        self._goals, self._states = [], []
        step = trainer.global_step
        if _gathered(goals) >= 4:
            log_figure(trainer, "critic/goals", self._goal_figure(goals, step), step)
        if _gathered(states) >= 4:
            log_figure(trainer, "critic/states", self._state_figure(states, step), step)

    def _goal_figure(self, goals: list[tuple[Tensor, Any]], step: int) -> Figure:
        embeddings = torch.cat([embedding for embedding, _ in goals])
        if goals[0][1] is None:
            return self._figure(embeddings[: self.points], {"": None}, f"Goal embeddings, step {step:,}")
        values, first = _distinct(torch.cat([value for _, value in goals]))
        kept = first.argsort()[: self.points]  # in the order of their coming: sorted, the largest would be left out
        values, embeddings = values[kept], embeddings[first[kept]]
        colours = {"parity of the goal's sum": parity_of(values), "sum of the goal": _sums(values)}
        return self._figure(embeddings, colours, f"{len(embeddings)} goal embeddings, step {step:,}")

    def _state_figure(self, states: list[tuple[Tensor, Tensor]], step: int) -> Figure:
        embeddings = torch.cat([embedding for embedding, _ in states])[: self.points]
        label = torch.cat([label for _, label in states])[: self.points]
        title = f"{len(embeddings)} embeddings of held-out states, step {step:,}"
        return self._figure(embeddings, {"the problem's target is": label}, title)

    def _figure(self, embeddings: Tensor, colours: Mapping[str, Tensor | None], title: str) -> Figure:
        figure = Figure(figsize=(10.4, 4.6 * len(colours)), layout="constrained")
        axes = figure.subplots(len(colours), 2, squeeze=False)
        principal = pca(embeddings, components=2)
        neighbours = tsne(embeddings, perplexity=self.perplexity, seed=self.seed)
        for (left, right), (meaning, values) in zip(axes, colours.items(), strict=True):
            shares = [f"component {k + 1} ({share:.0%} of variance)" for k, share in enumerate(principal.explained)]
            scatter(left, principal.points, meaning, values)
            left.set(title="PCA", xlabel=shares[0], ylabel=shares[1])
            scatter(right, neighbours, meaning, values)
            right.set(title="t-SNE", xlabel="dimension 1", ylabel="dimension 2")
        figure.suptitle(title)
        return figure


def scatter(panel: Axes, points: Tensor, meaning: str, values: Tensor | None) -> None:
    """Points coloured by two classes (bool), by a number with a colour bar, or not at all (None)."""
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
        panel.legend(title=meaning, **BELOW)
    else:
        image = panel.scatter(x, y, s=16, c=values.numpy(), cmap="viridis", alpha=0.8, linewidths=0)
        panel.figure.colorbar(image, ax=panel, label=meaning)


def _distinct(values: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct rows, and where each stands first."""
    distinct, inverse = torch.unique(values, dim=0, return_inverse=True)
    first = torch.full((len(distinct),), len(values)).scatter_reduce(0, inverse, torch.arange(len(values)), "amin")
    return distinct, first


def _sums(values: Tensor) -> Tensor:
    return values.reshape(len(values), -1).clamp(min=0).sum(dim=1)


def _gathered(parts: list[tuple[Tensor, Any]]) -> int:
    return sum(len(embeddings) for embeddings, _ in parts)

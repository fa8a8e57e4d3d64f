"""Validation of a critic: figures of its similarities and calibration, probes of its actions and geometry."""

from __future__ import annotations

from typing import Any

import lightning as L
import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import cosine_similarity, normalize

from callbacks.figures import LINE_COLOURS, log_with, watching
from contrastive_reasoning.critics import CriticBatch, rows_of, take
from contrastive_reasoning.critics.calibration import ReliabilityBins, reliability_bins
from contrastive_reasoning.evaluation import wilson
from contrastive_reasoning.geometry import (
    alignment,
    distinct_rows,
    effective_rank,
    parity_accuracy,
    parity_of,
    uniformity,
)
from contrastive_reasoning.losses import categorical_accuracy, mean_over
from contrastive_reasoning.policies.sharding import gathered
from contrastive_reasoning.ranges import at_least


class SimilarityHeatmap(L.Callback):
    """Draws, at the end of each validation, the cosine of the embeddings as published, and f itself beside it.

    For critics without embeddings (no ``encode_state_action``) it draws f alone. Only watches.

    Args:
        size: maximum number of rows and columns; each row has its own positive in the same column.

    Raises:
        ValueError: if ``size`` is below 2.
    """

    def __init__(self, *, size: int) -> None:
        at_least(2, size=size)
        self.size = size
        self._batch: CriticBatch | None = None

    def on_validation_batch_end(
        self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        if batch_idx == 0 and isinstance(batch, CriticBatch):
            self._batch = batch

    @torch.no_grad()
    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        batch, self._batch = self._batch, None
        if batch is None:
            return
        with gathered(pl_module.critic):
            rows, columns = positive_diagonal(batch.positive, self.size)
            if not watching(trainer) or len(rows) < 2:
                return
            critic: Any = pl_module.critic
            state_actions, goals = take(batch.state_actions, rows), take(batch.goals, columns)
            matrices = {}
            if hasattr(critic, "encode_state_action"):
                anchors, candidates = critic.encode_state_action(state_actions), critic.encode_goal(goals)
                matrices["cosine of φ(s, a) and ψ(g)"] = (
                    normalize(anchors.float(), dim=1) @ normalize(candidates.float(), dim=1).T
                )
            matrices["critic value f(s, a, g)"] = critic(state_actions, goals).float()
        figure = heatmaps(matrices, batch.positive[rows][:, columns], trainer.global_step)
        log_with(trainer, "log_figure", "critic/similarity", figure, trainer.global_step)


def positive_diagonal(positive: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """At most ``size`` rows spread over the batch, and for each its own positive column, none used twice.

    Args:
        positive: (A, C) bool.
        size: how many are wanted.

    Returns:
        Row and column indices, equally many.
    """
    having = positive.any(dim=1).nonzero().flatten().tolist()
    stride = max(1, round(len(having) ** 0.5))  # so that each depth appears if the batch is ordered by depth
    rows: list[int] = []
    columns: list[int] = []
    for row in (row for start in range(stride) for row in having[start::stride]):
        free = [column for column in positive[row].nonzero().flatten().tolist() if column not in columns]
        if free and len(rows) < size:
            rows.append(row)
            columns.append(free[0])
    return (
        torch.tensor(rows, dtype=torch.long, device=positive.device),
        torch.tensor(columns, dtype=torch.long, device=positive.device),
    )


def heatmaps(matrices: dict[str, Tensor], positive: Tensor, step: int) -> Figure:
    """One panel for each (A, C) matrix, with its title; dots mark known positives, on the diagonal and off it."""
    figure = Figure(figsize=(5.6 * len(matrices), 5.2), layout="constrained")
    axes = figure.subplots(1, len(matrices), squeeze=False)[0]
    rows, columns = positive.cpu().nonzero(as_tuple=True)
    for panel, (title, matrix) in zip(axes, matrices.items(), strict=True):
        # a cosine has a zero and fixed bounds; only the order of f is meaningful
        scale: dict[str, Any] = {"cmap": "cividis"}
        if title.startswith("cosine"):
            scale = {"cmap": "PuOr_r", "vmin": -1.0, "vmax": 1.0}
        image = panel.imshow(matrix.cpu().numpy(), **scale)
        panel.scatter(columns.numpy(), rows.numpy(), s=18, c="black", edgecolors="white", linewidths=0.7)
        panel.set(title=title, xlabel="goal", ylabel="state–action")
        figure.colorbar(image, ax=panel, shrink=0.85)
    figure.suptitle(f"State–actions against goals, step {step:,} (dots: known positives)")
    return figure


class Calibration(L.Callback):
    """Draws, at the end of each validation, a reliability diagram of the held-out states against the exact oracle.

    Reads ``oracle_metrics`` of the module; without them, or without held-out states, it draws nothing. Only watches.

    Args:
        bins: number of bins of equal width; use that of the logged ``val/oracle/ece``, which puts p = 1 in its own bin.

    Raises:
        ValueError: if ``bins`` is below 2.
    """

    def __init__(self, *, bins: int) -> None:
        at_least(2, **{"callbacks.calibration.bins": bins})
        self.bins = bins

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        """Runs before the module's own hook, which resets the metrics."""
        metrics = getattr(pl_module, "oracle_metrics", None)
        seen = None if metrics is None else metrics.predictions()
        if seen is not None and watching(trainer):
            figure = diagram(reliability_bins(*seen, bins=self.bins), step=trainer.global_step)
            log_with(trainer, "log_figure", "critic/calibration", figure, trainer.global_step)


def diagram(found: ReliabilityBins, *, step: int) -> Figure:
    """Shares over probabilities with 95% intervals; below it the number of states in each bin."""
    figure = Figure(figsize=(5.6, 6.4), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": [3, 1]})
    counts = found.count.tolist()
    intervals = [wilson(round(share * count), count) for share, count in zip(found.true.tolist(), counts, strict=True)]
    low, high = torch.tensor(intervals, dtype=torch.float64).T
    errors = torch.stack([found.true - low, high - found.true]).clamp(min=0)
    style: dict[str, Any] = {"fmt": "o-", "color": LINE_COLOURS[0], "linewidth": 1.6, "capsize": 3}
    upper.plot([0, 1], [0, 1], color="0.35", linestyle="--", linewidth=1.2, label="calibrated")
    upper.errorbar(found.predicted, found.true, yerr=errors, label="critic, 95% intervals", **style)
    upper.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), ylabel="share of states in reach")
    upper.grid(color="0.92")
    upper.legend(loc="upper left", frameon=False)
    lower.vlines(found.predicted, 0.5, found.count, color=LINE_COLOURS[0], linewidth=5)
    lower.set_yscale("log")
    lower.set(ylim=(0.5, 2 * float(found.count.max())), xlabel="probability the critic gives: σ(f/τ)", ylabel="states")
    total = int(found.count.sum())
    figure.suptitle(
        f"Critic against the exact oracle, step {step:,}\n{total:,} held-out states, ECE {found.expected_error:.3f}"
    )
    return figure


class DataCounts(L.Callback):
    """Logs at each validation how much data training has drawn, and how much of it is labelled wrong.

    Reads ``count_drawn`` of the datamodule (number of batches → name → how many different ones) as
    ``train/data/trajectories`` and ``…/triples``, and its ``label_report`` (name → share) as ``val/data/…``. Data
    without them logs nothing. Only watches.
    """

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        data = getattr(trainer, "datamodule", None)
        if (report := getattr(data, "label_report", None)) is not None:
            pl_module.log_dict({f"val/data/{name}": share for name, share in report().items()})
        count = getattr(data, "count_drawn", None)
        if count is not None:
            for name, number in count(trainer.global_step).items():
                pl_module.log(f"train/data/{name}", float(number), batch_size=1)


class ActionProbe(L.Callback):
    """Logs ``val/probe/accuracy_actions_shuffled``, beside ``val/critic/categorical_accuracy``. Only watches.

    It is the accuracy with the actions of other trajectories, and shows whether the critic reads the action at all. The
    published V1 failed here: its goals are reachable from the start whatever the action, and shuffling changed nothing.
    If there is no separate start (V2, joint, text), the whole state–action is shuffled and accuracy falls.

    If there is a separate start, it also logs ``val/probe/accuracy_starts_shuffled``, the accuracy without the start.
    """

    @torch.no_grad()
    def on_validation_batch_end(
        self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        if not isinstance(batch, CriticBatch):
            return
        anchors = rows_of(batch.state_actions)
        counts = pl_module.counted(batch, "validation", batch_idx)  # the same pairs as for the unshuffled accuracy
        for part, shuffled in shuffles(batch.state_actions).items():
            with gathered(pl_module.critic):
                logits = pl_module.critic(shuffled, batch.goals).float()
            right = categorical_accuracy(logits, batch.positive, counts).float()
            accuracy = mean_over(right, batch.positive.any(dim=1))
            name = f"val/probe/accuracy_{part}_shuffled"
            pl_module.log(name, accuracy, batch_size=anchors, add_dataloader_idx=False)


def shuffles(state_actions: Any) -> dict[str, Any]:
    """State–actions by the part that is shuffled: every anchor gets the next one's part, so none keeps its own.

    Args:
        state_actions: (A, 2, W) start and action, each of which moves alone; any other encoding moves as a whole.
    """
    moved = take(state_actions, torch.arange(rows_of(state_actions)).roll(-1))
    if isinstance(state_actions, Tensor) and state_actions.ndim == 3:
        return {
            "actions": torch.stack([state_actions[:, 0], moved[:, 1]], dim=1),
            "starts": torch.stack([moved[:, 0], state_actions[:, 1]], dim=1),
        }
    return {"actions": moved}


class GeometryProbe(L.Callback):
    """Logs geometry metrics of the embeddings under ``val/probe/``. Only watches.

    ``parity_from_components`` is of all different goals of a validation that are numbers. ``alignment`` and
    ``positive_cosine`` of positive pairs, ``uniformity`` and ``effective_rank`` of the goals are of its first batch.

    Args:
        components: principal components from which parity is read.
        folds: folds of the cross-validation.
    """

    def __init__(self, *, components: int, folds: int) -> None:
        self.components = components
        self.folds = folds
        self._goals: list[Tensor] = []

    def on_validation_batch_end(
        self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        if not isinstance(batch, CriticBatch) or not hasattr(pl_module.critic, "encode_goal"):
            return
        if isinstance(batch.goals, Tensor):
            self._goals.append(batch.goals)
        if batch_idx:
            return
        with gathered(pl_module.critic):
            measured = self.measure(pl_module.critic, batch)
        for name, value in measured.items():
            pl_module.log(f"val/probe/{name}", value, batch_size=1, add_dataloader_idx=False)

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        goals, self._goals = self._goals, []
        if not goals:
            return
        with gathered(pl_module.critic):
            accuracy = self.parity(pl_module.critic, torch.cat(goals))
        if accuracy == accuracy:  # NaN if one parity is missing
            pl_module.log("val/probe/parity_from_components", accuracy, batch_size=1)

    @torch.no_grad()
    def parity(self, critic: Any, goals: Tensor) -> float:
        """:func:`parity_accuracy` of the different goals. Duplicates would leak a goal from one fold to another."""
        goals = goals[distinct_rows(goals)]
        embeddings = critic.encode_goal(goals).float().cpu()
        return parity_accuracy(embeddings, parity_of(goals.cpu()), components=self.components, folds=self.folds)

    @torch.no_grad()
    def measure(self, critic: Any, batch: CriticBatch) -> dict[str, Tensor]:
        """Metrics of one batch, by name; those that cannot be computed are absent."""
        goals = critic.encode_goal(batch.goals).float()
        rows, columns = positive_diagonal(batch.positive, len(batch.positive))
        measured: dict[str, Tensor] = {}
        if len(rows):
            anchors = critic.encode_state_action(take(batch.state_actions, rows)).float()
            measured["alignment"] = alignment(anchors, goals[columns])
            measured["positive_cosine"] = cosine_similarity(anchors, goals[columns]).mean()
        if len(goals) > 1:
            measured |= {"uniformity": uniformity(goals), "effective_rank": effective_rank(goals)}
        return measured

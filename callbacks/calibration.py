"""A critic's probabilities against the exact oracle: of the states it calls likely, how many are in reach."""

from __future__ import annotations

from typing import Any

import lightning as L
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from callbacks.figures import LINE_COLOURS, log_figure, watching
from contrastive_reasoning.critics.reliability_bins import ReliabilityBins, reliability_bins

FIGURE = "critic/calibration"
Z = 1.96
"""Standard errors of a 95% interval."""


class Calibration(L.Callback):
    """At the end of each validation: a reliability diagram of the held-out states, and how many are in each bin.

    Reads ``oracle_metrics`` of the module; one without them, or without held-out states, draws nothing. Only watches.

    Args:
        bins: of equal width; as many as the logged ``val/oracle/ece`` has, which counts p = 1 in a bin of its own.

    Raises:
        ValueError: if ``bins`` is below 2.
    """

    def __init__(self, *, bins: int) -> None:
        if bins < 2:
            raise ValueError(f"callbacks.calibration.bins must be at least 2, got {bins}")
        self.bins = bins

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        """Before the module's own, which computes its metrics and forgets what they saw."""
        metrics = getattr(pl_module, "oracle_metrics", None)
        seen = None if metrics is None else metrics.predictions()
        if seen is not None and watching(trainer):
            step = trainer.global_step
            log_figure(trainer, FIGURE, diagram(reliability_bins(*seen, bins=self.bins), step=step), step)


def diagram(found: ReliabilityBins, *, step: int) -> Figure:
    """Shares over probabilities with 95% intervals; below it the number of states in each bin."""
    figure = Figure(figsize=(5.6, 6.4), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": [3, 1]})
    _shares(upper, found)
    lower.vlines(found.predicted, 0.5, found.count, color=LINE_COLOURS[0], linewidth=5)
    lower.set_yscale("log")
    lower.set(ylim=(0.5, 2 * float(found.count.max())), xlabel="probability the critic gives: σ(f/τ)", ylabel="states")
    total = int(found.count.sum())
    figure.suptitle(
        f"Critic against the exact oracle, step {step:,}\n{total:,} held-out states, ECE {found.expected_error:.3f}"
    )
    return figure


def _shares(panel: Axes, found: ReliabilityBins) -> None:
    low, high = wilson(found)
    panel.plot([0, 1], [0, 1], color="0.35", linestyle="--", linewidth=1.2, label="calibrated")
    errors = torch.stack([(found.true - low).clamp(min=0), (high - found.true).clamp(min=0)])
    panel.errorbar(
        found.predicted,
        found.true,
        yerr=errors,
        fmt="o-",
        color=LINE_COLOURS[0],
        linewidth=1.6,
        capsize=3,
        label="critic, 95% intervals",
    )
    panel.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), ylabel="share of states in reach")
    panel.grid(color="0.92")
    panel.legend(loc="upper left", frameon=False)


def wilson(found: ReliabilityBins) -> tuple[torch.Tensor, torch.Tensor]:
    """Wilson's 95% interval of each share: within [0, 1], and wide where few states are."""
    n, p = found.count.double(), found.true.double()
    centre = (p + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z / (1 + Z**2 / n) * (p * (1 - p) / n + Z**2 / (4 * n**2)).sqrt()
    return centre - half, centre + half

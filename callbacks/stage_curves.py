"""What a stage logged, as one picture of named panels when it ends: loss, success, length and the like over steps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import fmean
from typing import Any

import lightning as L
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from callbacks.figures import LINE_COLOURS, log_figure, watching
from contrastive_reasoning.progress import steps_done

FIGURE = "curves"
DASHES = ("-", "--", "-.", ":", "-")
"""One for each colour, for grey print."""
MOST_POINTS = 60
"""Of a line; where more were logged, they are drawn faintly and each point is the mean of its share of them."""

History = Mapping[int, float]
"""Step → value."""


class StageCurves(L.Callback):
    """Draws its panels from all that the logger has kept, before a resumption too, when training ends. Only watches.

    A metric that this run does not log is left out, and a panel without any. It reads the loggers that have a
    ``history``.

    Args:
        steps: what is counted on the x axis.
        panels: title → label of the line → name of the metric; underscores of titles and labels are drawn as spaces.

    Raises:
        ValueError: for no panels, or for one without lines or with more than can be distinguished.
    """

    def __init__(self, *, steps: str, panels: Mapping[str, Mapping[str, str]]) -> None:
        if not panels:
            raise ValueError("callbacks.stage_curves.panels must name at least one panel")
        for title, lines in panels.items():
            if not 1 <= len(lines) <= len(LINE_COLOURS):
                raise ValueError(f"panel {title!r} must have 1 to {len(LINE_COLOURS)} lines, got {len(lines)}")
        self.steps = steps
        self.panels = panels

    def on_fit_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        """When the last validation has been logged too.

        Not at the end of training: that is left out where a fit goes on from the checkpoint of its last step.
        """
        if not watching(trainer):
            return
        for logger in trainer.loggers:
            read: Any = getattr(logger, "history", None)
            figure = None if read is None else draw(read(), self.panels, steps=self.steps)
            if figure is not None:
                log_figure(trainer, FIGURE, figure, steps_done(trainer, pl_module))


def draw(histories: Mapping[str, History], panels: Mapping[str, Mapping[str, str]], *, steps: str) -> Figure | None:
    """The panels of which anything was logged, two beside each other; None where nothing was."""
    known = {
        title: {label: finite(histories.get(name, {})) for label, name in lines.items()}
        for title, lines in panels.items()
    }
    filled = {title: lines for title, lines in known.items() if any(lines.values())}
    if not filled:
        return None
    columns = min(2, len(filled))
    rows = -(-len(filled) // columns)
    figure = Figure(figsize=(5.4 * columns, 3.2 * rows), layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08))
    axes = figure.subplots(rows, columns, squeeze=False).flatten()
    for panel, (title, lines) in zip(axes, filled.items(), strict=False):
        _draw(panel, title, lines)
        panel.set_xlabel(steps)
    for empty in axes[len(filled) :]:
        empty.set_visible(False)
    return figure


def _draw(panel: Axes, title: str, lines: Mapping[str, History]) -> None:
    for (label, history), colour, dashes in zip(lines.items(), LINE_COLOURS, DASHES, strict=False):
        if not history:
            continue
        smooth = thinned(history)
        if len(smooth) < len(history):
            panel.plot(list(history), list(history.values()), color=colour, linewidth=0.6, alpha=0.35)
        marker = "o" if len(smooth) < 20 else ""
        panel.plot(
            list(smooth),
            list(smooth.values()),
            color=colour,
            linestyle=dashes,
            marker=marker,
            markersize=3.5,
            linewidth=1.8,
            label=label.replace("_", " "),
        )
    panel.set_title(title.replace("_", " "), fontsize=11)
    panel.grid(axis="y", color="0.9")
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    panel.legend(frameon=False, fontsize=9)


def finite(history: History) -> History:
    """In order of the steps, without what is no finite number."""
    return {step: value for step, value in sorted(history.items()) if math.isfinite(value)}


def thinned(history: History) -> History:
    """At most ``MOST_POINTS`` points: where there are more, means of as many neighbours each, at their middle."""
    width = -(-len(history) // MOST_POINTS)
    items = list(history.items())
    shares = [items[start : start + width] for start in range(0, len(items), width)]
    return {share[len(share) // 2][0]: fmean(value for _, value in share) for share in shares}

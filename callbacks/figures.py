"""Figures: their colours, how they are logged, and the curves of a stage at its end.

The colours are from the palette of Okabe and Ito, which colour-blind readers can distinguish.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import fmean
from typing import Any

import lightning as L
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from contrastive_reasoning.progress import steps_done

LINE_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000")
"""Colours of lines, in this order."""
PARITY_COLOURS = ("#0072B2", "#E69F00")
"""Even, odd."""
LABEL_COLOURS = ("#D55E00", "#009E73")
"""Out of reach, reachable."""
DASHES = ("-", "--", "-.", ":", "-")
"""One for each colour, for grey print."""
MOST_POINTS = 60
"""Maximum number of points of a line; longer histories are drawn faintly, with a line of their local means on top."""

History = Mapping[int, float]
"""Step → value."""


def watching(trainer: L.Trainer) -> bool:
    """Whether this process draws figures now; none does during the sanity check."""
    return trainer.is_global_zero and not trainer.sanity_checking


def log_with(trainer: L.Trainer, method: str, name: str, value: Any, step: int) -> None:
    """Calls ``method`` of each logger that has it: ``log_figure``, ``log_table``, ``log_page``."""
    for logger in trainer.loggers:
        if hasattr(logger, method):
            getattr(logger, method)(name, value, step=step)


def due(step: int, every: int) -> bool:
    """Whether something is drawn in this rollout batch: the first, and every ``every``-th."""
    return step == 1 or step % every == 0


class StageCurves(L.Callback):
    """Draws its panels when training ends, from all values in the logger, including those before a resumption. Only
    watches.

    A metric that this run does not log is omitted, and so is a panel without any. It reads the loggers that have a
    ``history``.

    Args:
        steps: label of the x axis: what is counted.
        panels: title → label of the line → name of the metric; underscores of titles and labels are drawn as spaces.

    Raises:
        ValueError: for no panels, or for a panel without lines or with more lines than can be distinguished.
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
        """Draws after the last validation has been logged.

        This is not in ``on_train_end``, which is skipped if a fit resumes from the checkpoint of its last step.
        """
        if not watching(trainer):
            return
        for logger in trainer.loggers:
            read: Any = getattr(logger, "history", None)
            figure = None if read is None else draw_curves(read(), self.panels, steps=self.steps)
            if figure is not None:
                log_with(trainer, "log_figure", "curves", figure, steps_done(trainer, pl_module))


def draw_curves(
    histories: Mapping[str, History], panels: Mapping[str, Mapping[str, str]], *, steps: str
) -> Figure | None:
    """The panels for which a finite number was logged, two in a row; None if there is none."""
    filled: dict[str, Mapping[str, History]] = {}
    for title, lines in panels.items():
        found = {label: sorted(histories.get(name, {}).items()) for label, name in lines.items()}
        finite = {label: {s: v for s, v in items if math.isfinite(v)} for label, items in found.items()}
        if any(finite.values()):
            filled[title] = finite
    if not filled:
        return None
    columns = min(2, len(filled))
    rows = -(-len(filled) // columns)
    figure = Figure(figsize=(5.4 * columns, 3.2 * rows), layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08))
    axes = figure.subplots(rows, columns, squeeze=False).flatten()
    for panel, (title, lines) in zip(axes, filled.items(), strict=False):
        for (label, history), colour, dashes in zip(lines.items(), LINE_COLOURS, DASHES, strict=False):
            if not history:
                continue
            smooth = thin(history)
            if len(smooth) < len(history):
                panel.plot(list(history), list(history.values()), color=colour, linewidth=0.6, alpha=0.35)
            style = {"linestyle": dashes, "marker": "o" if len(smooth) < 20 else "", "markersize": 3.5}
            name = label.replace("_", " ")
            panel.plot(list(smooth), list(smooth.values()), color=colour, linewidth=1.8, label=name, **style)
        panel.set_title(title.replace("_", " "), fontsize=11)
        panel.set_xlabel(steps)
        panel.grid(axis="y", color="0.9")
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
        panel.legend(frameon=False, fontsize=9)
    for empty in axes[len(filled) :]:
        empty.set_visible(False)
    return figure


def thin(history: History) -> History:
    """At most ``MOST_POINTS`` points: longer histories become means of equally many neighbours, at their middle."""
    width = -(-len(history) // MOST_POINTS)
    items = list(history.items())
    shares = [items[start : start + width] for start in range(0, len(items), width)]
    return {share[len(share) // 2][0]: fmean(value for _, value in share) for share in shares}

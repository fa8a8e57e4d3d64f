"""Colours of figures, and how they are logged: by the first process, to every logger that takes them.

The colours are of the palette of Okabe and Ito, which colour-blind readers can distinguish.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import lightning as L
from matplotlib.figure import Figure

LINE_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000")
"""Of lines, in this order."""
PARITY_COLOURS = ("#0072B2", "#E69F00")
"""Even, odd."""
LABEL_COLOURS = ("#D55E00", "#009E73")
"""Out of reach, reachable."""
LEGEND_BELOW: dict[str, Any] = {
    "loc": "upper center",
    "bbox_to_anchor": (0.5, -0.14),
    "ncols": 2,
    "frameon": False,
    "borderaxespad": 0,
}
"""A legend under its panel, where it covers no points."""
NEGATIVE, POSITIVE = (0xD5, 0x5E, 0x00), (0x00, 0x72, 0xB2)
DEEPEST = 0.65
"""Share of the colour at the ends of the scale, the rest white: black text on it stays readable."""


def watching(trainer: L.Trainer) -> bool:
    """Whether this process draws figures now; none does during the sanity check."""
    return trainer.is_global_zero and not trainer.sanity_checking


def log_figure(trainer: L.Trainer, name: str, figure: Figure, step: int) -> None:
    """Pass the figure to each logger that takes figures."""
    log_with(trainer, "log_figure", name, figure, step)


def log_with(trainer: L.Trainer, method: str, name: str, value: Any, step: int) -> None:
    """Call ``method`` of each logger that has it: ``log_figure``, ``log_table``, ``log_page``."""
    for logger in trainer.loggers:
        if hasattr(logger, method):
            getattr(logger, method)(name, value, step=step)


def due(step: int, every: int) -> bool:
    """Whether something is drawn in this rollout batch: the first, and every ``every``-th."""
    return step == 1 or step % every == 0


def limit_of(values: Iterable[float]) -> float:
    """The end of a symmetric scale for these numbers: the largest absolute value, 0 for none."""
    return max(map(abs, values), default=0.0)


def colour(value: float, limit: float) -> str:
    """``#rrggbb`` of a number on the scale −limit … limit: vermilion below, white at 0, blue above."""
    share = min(1.0, abs(value) / limit) if limit > 0 else 0.0
    end = POSITIVE if value > 0 else NEGATIVE
    return "#" + "".join(f"{round(255 + DEEPEST * share * (channel - 255)):02x}" for channel in end)

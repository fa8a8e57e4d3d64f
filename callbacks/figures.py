"""Where pictures go: to every logger that takes them, from the first process, never during the sanity check."""

from __future__ import annotations

from typing import Any

import lightning as L
from matplotlib.figure import Figure

LINE_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000")
"""Of lines, the first first. From the palette of Okabe and Ito, which colour-blind readers tell apart."""
PARITY_COLOURS = ("#0072B2", "#E69F00")
"""Even, odd; of the same palette."""
LABEL_COLOURS = ("#D55E00", "#009E73")
"""Out of reach, reachable; of the same palette."""
BELOW: dict[str, Any] = {
    "loc": "upper center",
    "bbox_to_anchor": (0.5, -0.14),
    "ncols": 2,
    "frameon": False,
    "borderaxespad": 0,
}
"""A legend under its panel, where there are no points that it could lie on."""


def watching(trainer: L.Trainer) -> bool:
    """Whether this process draws now."""
    return trainer.is_global_zero and not trainer.sanity_checking


def log_figure(trainer: L.Trainer, name: str, figure: Figure, step: int) -> None:
    """Hands the figure to each logger with a ``log_figure``."""
    for logger in trainer.loggers:
        take: Any = getattr(logger, "log_figure", None)
        if take is not None:
            take(name, figure, step)

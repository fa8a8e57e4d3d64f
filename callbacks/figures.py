"""Figures: their colours, how they are logged, and when.

The colours are from the palette of Okabe and Ito, which colour-blind readers can distinguish.
"""

from __future__ import annotations

from typing import Any

import lightning as L

LINE_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000")
"""Colours of lines, in this order."""
PARITY_COLOURS = ("#0072B2", "#E69F00")
"""Even, odd."""
LABEL_COLOURS = ("#D55E00", "#009E73")
"""Out of reach, reachable."""


def watching(trainer: L.Trainer) -> bool:
    """Whether this process draws figures now; none does during the sanity check."""
    return trainer.is_global_zero and not trainer.sanity_checking


def log_with(trainer: L.Trainer, method: str, name: str, value: Any, step: int) -> None:
    """Logs with the run folder's logger, by ``log_figure``, ``log_table`` or ``log_page``; figures with others, too."""
    loggers: list[Any] = trainer.loggers
    for logger in loggers:
        if hasattr(logger, "log_page"):  # others have a log_table of another form
            getattr(logger, method)(name, value, step=step)
        elif method == "log_figure" and hasattr(logger, "log_image"):  # Weights & Biases
            logger.log_image(name, [value], step=step)
        elif method == "log_figure" and hasattr(logger.experiment, "add_figure"):  # TensorBoard
            logger.experiment.add_figure(name, value, step, close=False)


def due(step: int, every: int) -> bool:
    """Whether something is drawn in this rollout batch: the first, and every ``every``-th."""
    return step == 1 or step % every == 0

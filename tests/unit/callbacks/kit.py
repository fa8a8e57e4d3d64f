"""A logger that keeps the figures of callbacks, and a check that a callback leaves training unchanged."""

from __future__ import annotations

from typing import Any

import torch
from lightning import Callback
from lightning.pytorch.loggers.logger import DummyLogger
from matplotlib.figure import Figure

from tests.unit.lightning_modules.grpo_kit import fit, module, weights


class Album(DummyLogger):
    """Keeps figures by name, in order, and the last value of each metric."""

    def __init__(self) -> None:
        super().__init__()
        self.figures: dict[str, list[tuple[int, Figure]]] = {}
        self.metrics: dict[str, float] = {}

    def log_figure(self, name: str, figure: Figure, step: int) -> None:
        self.figures.setdefault(name, []).append((step, figure))

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.metrics |= metrics


def assert_only_watches(callback: Callback, steps: int, *, logger: Any = False, **changes: Any) -> None:
    """Check that GRPO has bitwise equal weights with and without it. ``changes`` are functions that make parts."""
    watched, alone = (module(**{name: make() for name, make in changes.items()}) for _ in range(2))
    fit(watched, steps, callback, logger=logger)
    fit(alone, steps)
    assert torch.equal(weights(watched), weights(alone))

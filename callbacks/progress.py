"""A stage's progress: a bar on a terminal, a line now and then in a log."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import ProgressBar
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from callbacks.pace import Pace

REFRESH_SECONDS = 0.25


class Progress(ProgressBar):
    """Steps done of all, time gone and left, rate, and the metrics worth watching. Only watches.

    Args:
        metrics: names to show, of those that the module logs.
        window: steps over which the rate is taken.
        seconds_between_lines: how often a log that is no terminal gets a line.
        console: where to show it; null: standard output.
    """

    def __init__(
        self, *, metrics: Sequence[str], window: int, seconds_between_lines: float, console: Console | None
    ) -> None:
        super().__init__()
        self.metrics = tuple(metrics)
        self.window = window
        self.seconds_between_lines = seconds_between_lines
        self.console = console or Console()
        self._enabled = True
        self._bar: Bar | None = None

    def disable(self) -> None:
        self._enabled = False

    def enable(self) -> None:
        self._enabled = True

    def print(self, *args: Any, **kwargs: Any) -> None:
        """Above the bar."""
        self.console.print(*args, **kwargs)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Open the bar, or remember when the first line is due."""
        self._pace = Pace(self.window)
        self._pace.mark(trainer.global_step, monotonic())
        self._started = self._shown_at = monotonic()
        if self._enabled and self.console.is_terminal:
            self._bar = new_bar(self.console)
            total = trainer.max_steps if trainer.max_steps >= 0 else None
            self._task = self._bar.add_task("", total=total, completed=trainer.global_step, left="", metrics="")
            self._bar.start()

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Move the bar or write a line, whichever it is, if it is due."""
        now = monotonic()
        self._pace.mark(trainer.global_step, now)
        if now - self._shown_at >= (self.seconds_between_lines if self._bar is None else REFRESH_SECONDS):
            self._show(trainer, type(pl_module).__name__)

    def on_validation_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Say that the pause is a validation, and how far it is."""
        if self._bar is not None:
            total = sum(trainer.num_val_batches)
            self._bar.update(self._task, description=f"{type(pl_module).__name__} validating {batch_idx + 1}/{total:g}")

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """The last numbers stay on the screen."""
        self._show(trainer, type(pl_module).__name__)
        self._close()

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        self._close()

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        self._close()

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _show(self, trainer: L.Trainer, name: str) -> None:
        if not self._enabled:
            return
        self._shown_at = monotonic()
        step, left, metrics = trainer.global_step, self._left(trainer), shown(trainer.callback_metrics, self.metrics)
        if self._bar is not None:
            self._bar.update(self._task, description=name, completed=step, left=left, metrics=metrics)
            return
        total = f"/{trainer.max_steps}" if trainer.max_steps >= 0 else ""
        parts = [f"{name} {step}{total}", f"{clock(self._shown_at - self._started)} gone", left, metrics]
        self.console.print(" · ".join(filter(None, parts)), soft_wrap=True, markup=False, highlight=False)

    def _left(self, trainer: L.Trainer) -> str:
        rate, left = self._pace.rate, self._pace.seconds_left(trainer.max_steps)
        speed = [] if rate is None else [f"{rate:.3g} steps/s"]
        return " · ".join([*([] if left is None else [f"{clock(left)} left"]), *speed])


def new_bar(console: Console) -> Bar:
    """An empty bar with our columns."""
    return Bar(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
        TextColumn("{task.fields[metrics]}", style="italic"),
        console=console,
        refresh_per_second=4,
    )


def shown(values: Any, names: Sequence[str]) -> str:
    """``verifier/accuracy 0.31 · objective/loss 0.02``: of ``names`` those that there are, without their split."""
    found = [(name, float(values[name])) for name in names if name in values]
    return " · ".join(f"{name.removeprefix('train/')} {value:.3g}" for name, value in found)


def clock(seconds: float) -> str:
    """``0:07``, ``12:30``, ``1:02:03``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"

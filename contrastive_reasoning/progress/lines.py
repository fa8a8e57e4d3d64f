"""Progress for people: a line that renews itself on a terminal, a line now and then in a log."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from contrastive_reasoning.progress.display import Moment

REFRESH_SECONDS = 0.25
PATIENCE_SECONDS = 2.0
"""What a phase within another lasts before it gets a line of its own on a terminal: a shorter one would flicker."""


class Lines:
    """Units done of all, time gone and left, rate, and the metrics worth watching.

    Args:
        seconds_between_lines: how often a phase gets a line in a log that is no terminal.
        console: where to show it; null: standard output.
    """

    def __init__(self, *, seconds_between_lines: float, console: Console | None) -> None:
        self.seconds_between_lines = seconds_between_lines
        self.console = console or Console()
        self._bar: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    @property
    def seconds(self) -> float:
        return REFRESH_SECONDS if self.console.is_terminal else self.seconds_between_lines

    def open(self, moment: Moment) -> None:
        """On a terminal, a line of its own; a phase within another gets one under it when it has lasted a while."""
        if self.console.is_terminal and self._bar is None:
            self._bar = new_bar(self.console)
            self._bar.start()
            self._task(moment)

    def show(self, moment: Moment) -> None:
        if self._bar is None:
            self.console.print(line_of(moment), soft_wrap=True, markup=False, highlight=False)
        elif moment.heading in self._tasks or moment.seconds_gone >= PATIENCE_SECONDS:
            left, numbers = left_text(moment), numbers_text(moment.numbers)
            self._bar.update(self._task(moment), completed=moment.done, left=left, numbers=numbers)

    def _task(self, moment: Moment) -> TaskID:
        """Its line in the bar, a new one where it has none."""
        assert self._bar is not None
        if moment.heading not in self._tasks:
            self._tasks[moment.heading] = self._bar.add_task(
                moment.heading, total=moment.total, completed=moment.done, left="", numbers=""
            )
        return self._tasks[moment.heading]

    def close(self, moment: Moment) -> None:
        """The last line of the outermost phase stays on the screen."""
        task = self._tasks.pop(moment.heading, None)
        if self._bar is None or task is None:
            return
        if self._tasks:
            self._bar.remove_task(task)
        else:
            self._bar.stop()
            self._bar = None


def line_of(moment: Moment) -> str:
    """``grpo 12/60 · 0:40 gone · 2:40 left · 0.3 steps/s · reward/verifier 0.31``."""
    total = "" if moment.total is None else f"/{moment.total}"
    head = [f"{moment.heading} {moment.done}{total}", f"{clock(moment.seconds_gone)} gone"]
    return " · ".join(filter(None, [*head, left_text(moment), numbers_text(moment.numbers)]))


def left_text(moment: Moment) -> str:
    left = [] if moment.seconds_left is None else [f"{clock(moment.seconds_left)} left"]
    rate = [] if moment.rate is None else [f"{moment.rate:.3g} {moment.unit}/s"]
    return " · ".join([*left, *rate])


def numbers_text(numbers: Mapping[str, float]) -> str:
    """``reward/verifier 0.31 · val/verifier/accuracy 0.2``: while training that need not be said."""
    return " · ".join(f"{name.removeprefix('train/')} {value:.3g}" for name, value in numbers.items())


def new_bar(console: Console) -> Progress:
    """No line yet, with our columns."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
        TextColumn("{task.fields[numbers]}", style="italic"),
        console=console,
        refresh_per_second=4,
    )


def clock(seconds: float) -> str:
    """``0:07``, ``12:30``, ``1:02:03``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"

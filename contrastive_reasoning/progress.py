"""Progress of long phases, shown by ``progress=lines|json|quiet``."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from math import inf, isfinite
from time import monotonic
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from contrastive_reasoning.ranges import at_least

Numbers = Mapping[str, float]
"""Metrics to show, by name."""


class Quiet:
    """Shows nothing of a phase."""

    seconds: float = inf
    """Minimum seconds between two calls of ``show`` for a phase."""

    def open(self, phase: Phase) -> None: ...

    def show(self, phase: Phase, numbers: Numbers) -> None: ...

    def close(self, phase: Phase) -> None: ...


class JSONLines(Quiet):
    """One line of strict JSON per update on standard output; values that are unknown or not finite are null.

    {"stage": "grpo", "phase": null, "step": 12, "steps": 60, "unit": "steps", "seconds_gone": 40.1,
     "seconds_left": 160.4, "rate": 0.3, "train/reward/verifier": 0.31, …}
    """

    def __init__(self, *, seconds_between_lines: float) -> None:
        self.seconds = seconds_between_lines

    def show(self, phase: Phase, numbers: Numbers) -> None:
        values = {
            "stage": phase.stage,
            "phase": phase.name,
            "step": phase.done,
            "steps": phase.total,
            "unit": phase.unit,
            "seconds_gone": round(phase.seconds_gone, 1),
            "seconds_left": None if phase.seconds_left is None else round(phase.seconds_left, 1),
            "rate": None if phase.rate is None else float(f"{phase.rate:.4g}"),
            **{name: value if isfinite(value) else None for name, value in numbers.items()},
        }
        print(json.dumps(values, allow_nan=False), flush=True)


class Lines(Quiet):
    """A live progress bar on a terminal, with one below it for a nested phase; elsewhere a line from time to time.

    Args:
        seconds_between_lines: the minimum for a phase where there is no terminal.
        console: where to show it; None: standard output.
    """

    def __init__(self, *, seconds_between_lines: float, console: Console | None) -> None:
        self.console = console or Console()
        self.seconds = 0.25 if self.console.is_terminal else seconds_between_lines
        self._bar: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def open(self, phase: Phase) -> None:
        if self.console.is_terminal and self._bar is None:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.fields[numbers]}", style="italic"),
            )
            self._bar = Progress(*columns, console=self.console, refresh_per_second=4)
            self._bar.start()
            self.show(phase, {})

    def show(self, phase: Phase, numbers: Numbers) -> None:
        left = None if phase.seconds_left is None else f"{clock(phase.seconds_left)} left"
        rate = None if phase.rate is None else f"{phase.rate:.3g} {phase.unit}/s"
        named = [f"{name.removeprefix('train/')} {value:.3g}" for name, value in numbers.items()]
        text = " · ".join(filter(None, [left, rate, *named]))
        if self._bar is None:
            counted = f"{phase.done}" if phase.total is None else f"{phase.done}/{phase.total}"
            head = f"{phase.heading} {counted} · {clock(phase.seconds_gone)} gone"
            line = f"{head} · {text}" if text else head
            self.console.print(line, soft_wrap=True, markup=False, highlight=False)
        else:
            if phase.heading not in self._tasks:
                self._tasks[phase.heading] = self._bar.add_task(phase.heading, total=phase.total, numbers="")
            self._bar.update(self._tasks[phase.heading], completed=phase.done, numbers=text)

    def close(self, phase: Phase) -> None:
        """Closes the bar of a phase; the last state of the outermost phase stays on the screen."""
        task = self._tasks.pop(phase.heading, None)
        if self._bar is not None and task is not None:
            if self._tasks:
                self._bar.remove_task(task)
            else:
                self._bar.stop()
                self._bar = None


def clock(seconds: float) -> str:
    """``0:07``, ``12:30``, ``1:02:03``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Pace:
    """Steps per second over the last ``window`` steps, including validation between them; None: over all steps."""

    def __init__(self, window: int | None) -> None:
        if window is not None:
            at_least(1, window=window)
        self._marks: deque[tuple[int, float]] = deque(maxlen=None if window is None else window + 1)

    def mark(self, step: int, now: float) -> None:
        """Records that ``step`` steps are done at ``now``, in seconds."""
        if self._marks.maxlen is None and len(self._marks) == 2:
            self._marks.pop()  # over all steps, only the first and the newest mark count
        self._marks.append((step, now))

    @property
    def rate(self) -> float | None:
        """Steps per second; None before two marks."""
        if not self._marks:
            return None
        (first, then), (last, now) = self._marks[0], self._marks[-1]
        return (last - first) / (now - then) if now > then else None

    def seconds_left(self, total: int) -> float | None:
        """Seconds until ``total`` steps are done; None where the rate is not known."""
        return max(0, total - self._marks[-1][0]) / self.rate if self.rate else None


class Phase:
    """Counts the progress of a phase until ``close``.

    It is shown at most every ``display.seconds``, so a short phase is not shown at all.

    Args:
        display: shows it.
        stage: the stage of an experiment.
        name: the phase within the stage, such as ``validating``; None where it counts the stage's own steps.
        unit: what is counted, such as ``steps``.
        total: how many there are; None where it is not known.
        done: how many are done at the beginning.
        window: calls of ``move`` over which the rate is taken; None: all.
    """

    def __init__(
        self,
        display: Quiet,
        *,
        stage: str,
        name: str | None = None,
        unit: str,
        total: int | None,
        done: int = 0,
        window: int | None = None,
    ) -> None:
        self.display = display
        self.stage, self.name, self.unit, self.total = stage, name, unit, total
        self.heading = stage if name is None else f"{stage} {name}"
        self.done = done
        self.shown = False
        """Whether it was shown at least once."""
        self._pace = Pace(window)
        self._started = self._shown_at = monotonic()
        self._pace.mark(done, self._started)
        display.open(self)

    @property
    def seconds_gone(self) -> float:
        return monotonic() - self._started

    @property
    def seconds_left(self) -> float | None:
        return None if self.total is None else self._pace.seconds_left(self.total)

    @property
    def rate(self) -> float | None:
        """Units per second; None where nothing is done yet."""
        return self._pace.rate

    def move(self, done: int, numbers: Callable[[], Numbers] = dict) -> None:
        """Records that ``done`` are done now. Calls ``numbers`` only if the phase is shown."""
        if monotonic() - self._shown_at >= self.display.seconds:
            self.show(done, numbers())
        else:
            self.done = done
            self._pace.mark(done, monotonic())

    def show(self, done: int, numbers: Numbers) -> None:
        """Records that ``done`` are done now, and shows the phase whether it is due or not."""
        self.done = done
        self.shown, self._shown_at = True, monotonic()
        self._pace.mark(done, self._shown_at)
        self.display.show(self, numbers)

    def close(self) -> None:
        self.display.close(self)

    def __enter__(self) -> Phase:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def phase_of(trainer: Any, name: str, *, unit: str, total: int | None) -> Phase:
    """A phase of the stage that ``trainer`` runs, shown by its progress bar if that is this project's ``Progress``."""
    bar: Any = getattr(trainer, "progress_bar_callback", None)
    if hasattr(bar, "phase"):
        return bar.phase(name, unit=unit, total=total)
    return Phase(Quiet(), stage="", name=name, unit=unit, total=total)


def steps_done(trainer: Any, module: Any) -> int:
    """The x axis: rollout batches, if the module counts them, else the optimizer steps that Lightning counts."""
    return int(getattr(module, "rollout_step", trainer.global_step))


def step_is_logged(trainer: Any) -> bool:
    """Whether the loggers record this training step: every ``trainer.log_every_n_steps``-th is recorded.

    Lightning's ``log`` takes a noticeable part of a small critic's step, so the other steps need not call it.
    """
    return bool(trainer._logger_connector.should_update_logs)


def steps_in_all(trainer: Any, module: Any) -> int | None:
    """The final value of ``steps_done``; None where it is not known.

    ``max_steps`` does not give it: a rollout batch may hold several optimizer steps, or none in a reward's warm-up.
    """
    most = trainer.num_training_batches if hasattr(module, "rollout_step") else trainer.max_steps
    return int(most) if isfinite(most) and most >= 0 else None

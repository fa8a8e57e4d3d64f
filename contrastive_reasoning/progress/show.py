"""How far a long phase is, shown as lines, as JSON, or not at all: ``progress=lines|json|quiet``."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from math import inf, isfinite
from time import monotonic
from typing import Any, Protocol, runtime_checkable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

PATIENCE_SECONDS = 2.0
"""A phase within another gets a line of its own on a terminal after so long: a shorter one would flicker."""


Numbers = Mapping[str, float]
"""Metrics worth watching, by name."""


@runtime_checkable
class Display(Protocol):
    """Shows phases; one may last within another."""

    @property
    def seconds(self) -> float:
        """The least time from one ``show`` of a phase to the next."""
        ...

    def open(self, phase: Phase) -> None: ...

    def show(self, phase: Phase, numbers: Numbers) -> None: ...

    def close(self, phase: Phase) -> None: ...


class Quiet:
    """Shows nothing of a phase."""

    seconds = inf

    def open(self, phase: Phase) -> None: ...

    def show(self, phase: Phase, numbers: Numbers) -> None: ...

    def close(self, phase: Phase) -> None: ...


class JSONLines:
    """One object of strict JSON a line on standard output; what is not known, or not finite, is null.

        {"stage": "grpo", "phase": null, "step": 12, "steps": 60, "unit": "steps", "seconds_gone": 40.1,
         "seconds_left": 160.4, "rate": 0.3, "train/reward/verifier": 0.31, …}

    Args:
        seconds_between_lines: of a phase.
    """

    def __init__(self, *, seconds_between_lines: float) -> None:
        self.seconds = seconds_between_lines

    def open(self, phase: Phase) -> None: ...

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

    def close(self, phase: Phase) -> None: ...


class Lines:
    """A bar that renews itself on a terminal, elsewhere a line now and then.

    Args:
        seconds_between_lines: of a phase, where there is no terminal.
        console: where to show it; null: standard output.
    """

    def __init__(self, *, seconds_between_lines: float, console: Console | None) -> None:
        self.console = console or Console()
        self.seconds = 0.25 if self.console.is_terminal else seconds_between_lines
        self._bar: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def open(self, phase: Phase) -> None:
        """On a terminal the outermost phase gets a bar; one within it gets its own after ``PATIENCE_SECONDS``."""
        if self.console.is_terminal and self._bar is None:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.fields[left]}"),
                TextColumn("{task.fields[numbers]}", style="italic"),
                console=self.console,
                refresh_per_second=4,
            )
            self._bar.start()
            self._update(self._bar, phase, {})

    def show(self, phase: Phase, numbers: Numbers) -> None:
        if self._bar is None:
            self.console.print(line_of(phase, numbers), soft_wrap=True, markup=False, highlight=False)
        elif phase.heading in self._tasks or phase.seconds_gone >= PATIENCE_SECONDS:
            self._update(self._bar, phase, numbers)

    def close(self, phase: Phase) -> None:
        """The last state of the outermost phase stays on the screen."""
        task = self._tasks.pop(phase.heading, None)
        if self._bar is None or task is None:
            return
        if self._tasks:
            self._bar.remove_task(task)
        else:
            self._bar.stop()
            self._bar = None

    def _update(self, bar: Progress, phase: Phase, numbers: Numbers) -> None:
        if phase.heading not in self._tasks:
            self._tasks[phase.heading] = bar.add_task(phase.heading, total=phase.total, left="", numbers="")
        task, left = self._tasks[phase.heading], left_text(phase)
        bar.update(task, completed=phase.done, left=left, numbers=numbers_text(numbers))


def line_of(phase: Phase, numbers: Numbers) -> str:
    """``grpo 12/60 · 0:40 gone · 2:40 left · 0.3 steps/s · reward/verifier 0.31``."""
    total = "" if phase.total is None else f"/{phase.total}"
    head = [f"{phase.heading} {phase.done}{total}", f"{clock(phase.seconds_gone)} gone"]
    return " · ".join(filter(None, [*head, left_text(phase), numbers_text(numbers)]))


def left_text(phase: Phase) -> str:
    left = "" if phase.seconds_left is None else f"{clock(phase.seconds_left)} left"
    rate = "" if phase.rate is None else f"{phase.rate:.3g} {phase.unit}/s"
    return " · ".join(filter(None, [left, rate]))


def numbers_text(numbers: Numbers) -> str:
    """``reward/verifier 0.31 · val/verifier/accuracy 0.2``."""
    return " · ".join(f"{name.removeprefix('train/')} {value:.3g}" for name, value in numbers.items())


def clock(seconds: float) -> str:
    """``0:07``, ``12:30``, ``1:02:03``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Pace:
    """Steps per second over the last ``window`` steps, validation between them included; None: over all steps."""

    def __init__(self, window: int | None) -> None:
        if window is not None and window < 1:
            raise ValueError(f"window must be at least 1 step, got {window}")
        self._first: tuple[int, float] | None = None
        self._ends: deque[tuple[int, float]] = deque(maxlen=1 if window is None else window + 1)
        self._whole = window is None

    def mark(self, step: int, now: float) -> None:
        """``step`` steps are done at ``now``, in seconds."""
        self._first = self._first or (step, now)
        self._ends.append((step, now))

    @property
    def rate(self) -> float | None:
        """Steps per second; None before two marks."""
        if self._first is None:
            return None
        first, then = self._first if self._whole else self._ends[0]
        last, now = self._ends[-1]
        return (last - first) / (now - then) if now > then else None

    def seconds_left(self, total: int) -> float | None:
        """Until ``total`` steps are done; None where it is not known."""
        if not self.rate or total < 0:
            return None
        return max(0, total - self._ends[-1][0]) / self.rate


class Phase:
    """Counts a phase until ``close``. It is shown at most every ``display.seconds``, so a short one not at all.

    Args:
        display: shows it.
        stage: of an experiment.
        name: of the phase within the stage, ``validating``; None where it counts the stage's own steps.
        unit: what is counted, ``steps``.
        total: of them; None where it is not known.
        done: of them at the beginning.
        window: calls of ``move`` over which the rate is taken; None: all.
    """

    def __init__(
        self,
        display: Display,
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
        """Whether it was shown at all."""
        self._pace = Pace(window)
        self._started = self._shown_at = monotonic()
        self._pace.mark(done, self._started)
        display.open(self)

    @property
    def visible(self) -> bool:
        """Whether the display shows it while it lasts."""
        return isfinite(self.display.seconds)

    @property
    def seconds_gone(self) -> float:
        return monotonic() - self._started

    @property
    def seconds_left(self) -> float | None:
        return None if self.total is None else self._pace.seconds_left(self.total)

    @property
    def rate(self) -> float | None:
        """Units per second; None where nothing was done yet."""
        return self._pace.rate

    def move(self, done: int, numbers: Callable[[], Numbers] = dict) -> None:
        """``done`` are done now; ``numbers`` is called where it is shown."""
        now = monotonic()
        self.done = done
        self._pace.mark(done, now)
        if now - self._shown_at >= self.display.seconds:
            self._show(numbers())

    def show(self, done: int, numbers: Numbers) -> None:
        """``done`` are done now, shown whether due or not."""
        self.done = done
        self._pace.mark(done, monotonic())
        self._show(numbers)

    def close(self) -> None:
        self.display.close(self)

    def __enter__(self) -> Phase:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _show(self, numbers: Numbers) -> None:
        self.shown, self._shown_at = True, monotonic()
        self.display.show(self, numbers)


def phase_of(trainer: Any, name: str, *, unit: str, total: int | None) -> Phase:
    """A phase of the stage that ``trainer`` runs, shown by its progress bar, if that is ours."""
    bar: Any = getattr(trainer, "progress_bar_callback", None)
    if hasattr(bar, "phase"):
        return bar.phase(name, unit=unit, total=total)
    return Phase(Quiet(), stage="", name=name, unit=unit, total=total)


def steps_done(trainer: Any, module: Any) -> int:
    """Rollout batches of a module that counts them, else the optimizer steps that Lightning counts: the x axis."""
    return int(getattr(module, "rollout_step", trainer.global_step))


def steps_in_all(trainer: Any, module: Any) -> int | None:
    """How many of ``steps_done`` there will be; None where that is open.

    A rollout batch may hold several optimizer steps, or none while a reward warms up, so ``max_steps`` is no answer.
    """
    most = trainer.num_training_batches if hasattr(module, "rollout_step") else trainer.max_steps
    return int(most) if isfinite(most) and most >= 0 else None

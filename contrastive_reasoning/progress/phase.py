"""A long phase while it lasts: counts what is done, and has it shown when that is due."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from time import monotonic
from typing import Any, Protocol, runtime_checkable

from contrastive_reasoning.progress.display import Display, Moment, Quiet
from contrastive_reasoning.progress.pace import Pace

Numbers = Callable[[], Mapping[str, float]]
"""Asked for the metrics only when they are shown."""


class Phase:
    """From its making to ``close``. It is shown at most every ``display.seconds``, so a short one not at all.

    Args:
        display: who shows it.
        stage: of an experiment.
        name: of the phase within the stage; None where it counts the stage's own steps.
        unit: what is counted.
        total: of them; None where that is not known.
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
        self.done = done
        self.told = False
        """Whether it was shown at all."""
        self._pace = Pace(window)
        self._started = self._shown_at = monotonic()
        self._pace.mark(done, self._started)
        display.open(self._moment({}))

    @property
    def seen(self) -> bool:
        """Whether anybody looks while it lasts."""
        return isfinite(self.display.seconds)

    def __enter__(self) -> Phase:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def move(self, done: int, numbers: Numbers = dict) -> None:
        """So many are done now."""
        now = monotonic()
        self.done = done
        self._pace.mark(done, now)
        if now - self._shown_at >= self.display.seconds:
            self._show(numbers())

    def say(self, done: int, numbers: Mapping[str, float]) -> None:
        """So many are done now, shown whether due or not."""
        self.done = done
        self._pace.mark(done, monotonic())
        self._show(numbers)

    def _show(self, numbers: Mapping[str, float]) -> None:
        self.told, self._shown_at = True, monotonic()
        self.display.show(self._moment(numbers))

    def close(self) -> None:
        self.display.close(self._moment({}))

    def _moment(self, numbers: Mapping[str, float]) -> Moment:
        return Moment(
            stage=self.stage,
            phase=self.name,
            unit=self.unit,
            done=self.done,
            total=self.total,
            seconds_gone=monotonic() - self._started,
            seconds_left=None if self.total is None else self._pace.seconds_left(self.total),
            rate=self._pace.rate,
            numbers=numbers,
        )


@runtime_checkable
class ShowsPhases(Protocol):
    """The progress bar of a trainer that can be lent."""

    def phase(self, name: str, *, unit: str, total: int | None) -> Phase: ...


def phase_of(trainer: Any, name: str, *, unit: str, total: int | None) -> Phase:
    """A phase of the stage that ``trainer`` is at, shown where its progress is; one that nobody sees without such."""
    shown = getattr(trainer, "progress_bar_callback", None)
    if isinstance(shown, ShowsPhases):
        return shown.phase(name, unit=unit, total=total)
    return Phase(Quiet(), stage="", name=name, unit=unit, total=total)

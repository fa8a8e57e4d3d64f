"""What is shown of a phase, who shows it, and the one who shows nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, kw_only=True)
class Moment:
    """How far a phase is."""

    stage: str
    phase: str | None
    """Within the stage, ``validating``; None for the stage's own steps."""
    unit: str
    """What is counted: ``steps``, ``problems``."""
    done: int
    total: int | None
    """None where nobody knows how many there will be."""
    seconds_gone: float
    seconds_left: float | None
    rate: float | None
    """Units per second; None until there are two to tell it from."""
    numbers: Mapping[str, float] = field(default_factory=dict)
    """The metrics worth watching, under their names."""

    @property
    def heading(self) -> str:
        return self.stage if self.phase is None else f"{self.stage} {self.phase}"


@runtime_checkable
class Display(Protocol):
    """Shows phases; one may last within another."""

    @property
    def seconds(self) -> float:
        """How long a phase waits from one ``show`` to the next."""
        ...

    def open(self, moment: Moment) -> None:
        """A phase begins."""
        ...

    def show(self, moment: Moment) -> None: ...

    def close(self, moment: Moment) -> None:
        """It is over."""
        ...


class Quiet:
    """Shows nothing: that stages begin and end, and what is wrong, others say."""

    seconds = inf

    def open(self, moment: Moment) -> None: ...

    def show(self, moment: Moment) -> None: ...

    def close(self, moment: Moment) -> None: ...

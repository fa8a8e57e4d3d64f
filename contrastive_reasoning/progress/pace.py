"""How fast steps follow each other, over the last few of them or over all."""

from __future__ import annotations

from collections import deque


class Pace:
    """Steps per second over the last ``window`` steps; validation between them counts, as it does for whoever waits.

    With None the rate is over all that was marked: for what is done in bursts.
    """

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
        """Until ``total`` steps are done; None where that cannot be said."""
        if not self.rate or total < 0:
            return None
        return max(0, total - self._ends[-1][0]) / self.rate

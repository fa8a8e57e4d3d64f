"""How fast steps follow each other, over the last few of them."""

from __future__ import annotations

from collections import deque


class Pace:
    """Steps per second over the last ``window`` steps; validation between them counts, as it does for whoever waits."""

    def __init__(self, window: int) -> None:
        if window < 1:
            raise ValueError(f"window must be at least 1 step, got {window}")
        self._ends: deque[tuple[int, float]] = deque(maxlen=window + 1)

    def mark(self, step: int, now: float) -> None:
        """``step`` steps are done at ``now``, in seconds."""
        self._ends.append((step, now))

    @property
    def rate(self) -> float | None:
        """Steps per second; None before two marks."""
        if len(self._ends) < 2:
            return None
        (first, then), (last, now) = self._ends[0], self._ends[-1]
        return (last - first) / (now - then) if now > then else None

    def seconds_left(self, total: int) -> float | None:
        """Until ``total`` steps are done; None where that cannot be said."""
        if not self.rate or total < 0:
            return None
        return max(0, total - self._ends[-1][0]) / self.rate

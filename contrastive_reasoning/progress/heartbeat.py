"""Watches work that says when it has moved: where it is silent for too long, the stacks of all threads are written."""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType

from contrastive_reasoning.progress.stack_dump import StackDump

PAUSE_S = 1.0
"""Seconds between two beats that count: a timer costs a thread, and completions may end by the thousand."""


class Heartbeat:
    """``with Heartbeat(…) as heart`` and ``heart.beat(…)`` whenever something was done. Only watches.

    Args:
        path: the file of the stacks, which is there only where there are some.
        what: the work, as it reads in a sentence.
        limit: seconds between two beats, to a second; None: as long as it likes.

    Raises:
        ValueError: ``limit`` is not positive.
    """

    def __init__(self, path: Path, *, what: str, limit: float | None) -> None:
        if limit is not None and not limit > 0:
            raise ValueError(f"the limit of {what} must be positive (or null), got {limit}")
        self.path = path
        self.what = what
        self.limit = limit
        self._stacks: StackDump | None = None
        self._last = 0.0

    def __enter__(self) -> Heartbeat:
        if self.limit is not None:
            self._stacks = StackDump(self.path)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._stacks is not None:
            self._stacks.close()
        self._stacks = None

    def beat(self, at: str, *, always: bool = False) -> None:
        """Something was done; ``at`` tells what came last. ``always``: it counts, however soon after the last one."""
        now = time.monotonic()
        if self._stacks is None or self.limit is None:
            return
        if now - self._last < min(PAUSE_S, self.limit / 2) and not always:
            return
        self._last = now
        self._stacks.end(self.what)
        self._stacks.begin(self.what, limit=self.limit, at=at)

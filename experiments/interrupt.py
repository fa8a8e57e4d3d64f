"""A stage stopped by its person or its cluster: nothing is lost but what a second signal cuts off."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}


class Interrupted(Exception):
    """A stage was stopped while it ran. The message names it, the step and the checkpoint that is left."""


class StopRequest:
    """Whether somebody has asked the run to stop; while listened for, the first signal only asks.

    first signal     the step ends, a checkpoint is written, the run stops
    second signal    as if nobody listened: it stops now
    """

    def __init__(self) -> None:
        self.asked: str | None = None
        """By what: ``Ctrl-C`` or ``SIGTERM``."""

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take the signals; afterwards they are whose they were. Outside the main thread, nothing."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._ask) for number in SIGNALS}
        self._before = before
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = SIGNALS[signal.Signals(number)]
        for each, handler in self._before.items():
            signal.signal(each, handler)
        print(f"\n{self.asked}: stopping after this step; once more to stop now", flush=True)

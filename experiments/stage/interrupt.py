"""A stage stopped by its person or its cluster: nothing is lost but what a second signal cuts off."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from contrastive_reasoning.distributed import gather

SIGNALS = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}


class Interrupted(Exception):
    """A stage was stopped while it ran. The message names it, the step and the checkpoint that is left."""


class StopRequest:
    """Whether somebody has asked the run to stop; where it listens, the first signal only asks.

    first signal     the step ends, a checkpoint is written, the run stops
    second signal    as if nobody listened: it stops now
    """

    def __init__(self) -> None:
        self.asked: str | None = None
        """By what: ``Ctrl-C`` or ``SIGTERM``."""
        self._before: dict[signal.Signals, Any] = {}

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Within it ``listen`` may take the signals; afterwards they are whose they were."""
        self._before = {number: signal.getsignal(number) for number in SIGNALS}
        try:
            yield
        finally:
            self._give_back()

    def listen(self) -> None:
        """Take the signals, from whoever has them now. Outside the main thread, where nobody can, nothing."""
        if self._before and threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                signal.signal(number, self._ask)

    def stop_at_once(self) -> None:
        """Where nothing is to be saved: from now on SIGTERM raises, as Ctrl-C does by itself."""
        if self._before and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, _raise)

    def agreed(self) -> str | None:
        """What was asked on any rank so far, the same on each: signals do not reach all in the same step.

        One that comes while ranks wait for each other here is told by the next call.
        """
        return next((asked for asked in gather(self.asked) if asked), None)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = SIGNALS[signal.Signals(number)]
        self._give_back()
        print(f"\n{self.asked}: stopping after this step; once more to stop now", flush=True)

    def _give_back(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number, handler in self._before.items():
                signal.signal(number, handler)


def _raise(number: int, frame: FrameType | None) -> None:
    raise Interrupted(f"stopped by {SIGNALS[signal.Signals(number)]} before the first step (no checkpoint yet)")

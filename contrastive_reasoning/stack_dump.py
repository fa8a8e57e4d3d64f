"""Stack dumps of work that hangs: where every thread stands once an activity has lasted too long."""

from __future__ import annotations

import faulthandler
import threading
import time
import warnings
from collections.abc import Mapping
from math import inf
from pathlib import Path
from time import monotonic
from typing import TextIO

GRACE_S = 1.0
"""Seconds after the limit at which faulthandler writes the stacks from C, if no Python thread can run."""
PAUSE_S = 1.0
"""Minimum seconds between two counted beats: each starts a thread, and completions may end by the thousand."""


class StackDump:
    """Writes the stacks of all threads if an activity lasts too long. It neither stops nor changes the activity.

    begin ──── limit ────► a thread writes a line and all stacks, and warns
                    └ + GRACE_S ──► faulthandler does, from C
    end before: nothing is written

    Only one activity is watched at a time; of nested ones, the outer.

    Args:
        limits: activity → seconds; None: no limit.
        path: the file of the stacks; it is created when an activity is first watched, and kept only if it is not empty.

    Raises ValueError for a limit that is not positive.
    """

    def __init__(self, limits: Mapping[str, float | None], path: Path) -> None:
        self.limits = {what: limit for what, limit in limits.items() if limit is not None}
        for what, limit in self.limits.items():
            if not limit > 0:
                raise ValueError(f"callbacks.every.watchdog.limits.{what} must be positive (or null), got {limit}")
        self.path = path
        self._file: TextIO | None = None
        self._what: str | None = None
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._sentence = ""
        self._due = inf
        self._beaten = 0.0

    def begin(self, what: str, at: str) -> None:
        """Starts to watch ``what``; ``at`` describes when it began, such as ``after step 3``."""
        if self._what is not None or what not in self.limits:
            return
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("a", encoding="utf-8")
        limit = self.limits[what]
        self._what, self._due = what, monotonic() + limit
        self._sentence = f"{what} {at} has lasted longer than {limit:g} s; where every thread stands: {self.path}"
        self._timer = threading.Timer(limit, self._dump, [self._file])
        self._timer.daemon = True
        self._timer.start()
        # a process has one such timer: another call would replace it
        faulthandler.dump_traceback_later(limit + GRACE_S, file=self._file)

    def end(self, what: str | None) -> None:
        """Stops watching ``what``."""
        if what is None or self._what != what or self._timer is None:
            return
        faulthandler.cancel_dump_traceback_later()
        self._timer.cancel()
        with self._lock:
            self._what = None
            if self._sentence and monotonic() > self._due + GRACE_S:  # no Python thread could run
                self._warn()

    def beat(self, what: str, at: str, *, always: bool = False) -> None:
        """Restarts the watch of ``what``; ``at`` describes what was done last. ``always``: even soon after a beat."""
        now = monotonic()
        if what in self.limits and (always or now - self._beaten >= min(PAUSE_S, self.limits[what] / 2)):
            self._beaten = now
            self.end(what)
            self.begin(what, at)

    def close(self) -> None:
        """Stops watching; removes a file without stacks."""
        self.end(self._what)
        if self._file is not None:
            self._file.close()
        self._file = None
        if self.path.is_file() and not self.path.stat().st_size:  # an interrupted run leaves an empty file, too
            self.path.unlink()

    def __enter__(self) -> StackDump:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _dump(self, file: TextIO) -> None:
        with self._lock:
            if self._what is None or self._timer is not threading.current_thread():
                return  # it ended at the same moment
            faulthandler.cancel_dump_traceback_later()
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {self._sentence.partition(';')[0]}\n")
            file.flush()
            faulthandler.dump_traceback(file)
            self._warn()

    def _warn(self) -> None:
        sentence, self._sentence = self._sentence, ""
        warnings.warn(sentence, stacklevel=2)

"""Writes the stacks of all threads once something has lasted too long. What is watched is neither stopped nor changed.

begin ──── limit ────► a thread writes a line and all stacks, and warns
                └ + GRACE_S ──► faulthandler does, from C, where the interpreter is held and no thread runs
end before: nothing is written
"""

from __future__ import annotations

import faulthandler
import threading
import time
import warnings
from pathlib import Path
from typing import TextIO

GRACE_S = 1.0
PAUSE_S = 1.0
"""Between two beats that count: each starts a thread, and completions may end by the thousand."""


class StackDump:
    """Watches one thing at a time; of a thing within another the outer one counts.

    Args:
        path: the file of the stacks, which remains only if there are some.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._file: TextIO = path.open("a", encoding="utf-8")
        self._what: str | None = None
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._sentence = ""
        self._due = float("inf")

    def begin(self, what: str, *, limit: float, at: str) -> None:
        """``what`` begins and may last ``limit`` seconds; ``at`` says when it was, ``after step 3``."""
        if self._what is not None:
            return
        self._what, self._due = what, time.monotonic() + limit
        self._sentence = f"{what} {at} has lasted longer than {limit:g} s; where every thread stands: {self.path}"
        self._timer = threading.Timer(limit, self._dump)
        self._timer.daemon = True
        self._timer.start()
        faulthandler.dump_traceback_later(limit + GRACE_S, file=self._file)

    def end(self, what: str) -> None:
        """``what`` has ended."""
        if self._what != what:
            return
        faulthandler.cancel_dump_traceback_later()
        assert self._timer is not None, "begin starts a timer"
        self._timer.cancel()
        with self._lock:
            self._what = None
            if self._sentence and time.monotonic() > self._due + GRACE_S:  # no thread of Python could run
                self._warn()

    def close(self) -> None:
        """Stop watching; a file without stacks is removed."""
        if self._what is not None:
            self.end(self._what)
        self._file.close()
        if not self.path.stat().st_size:
            self.path.unlink()

    def _dump(self) -> None:
        with self._lock:
            if self._what is None or self._timer is not threading.current_thread():
                return  # it ended at the same moment
            faulthandler.cancel_dump_traceback_later()
            self._file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {self._sentence.partition(';')[0]}\n")
            self._file.flush()
            faulthandler.dump_traceback(self._file)
            self._warn()

    def _warn(self) -> None:
        sentence, self._sentence = self._sentence, ""
        warnings.warn(sentence, stacklevel=2)


class Heartbeat:
    """Watches work that calls ``beat`` whenever something was done: ``with Heartbeat(…) as heart``.

    Args:
        path: the file of the stacks, which remains only if there are some.
        what: the work, as it reads in a sentence.
        limit: seconds between two beats, to a second; None: any.

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

    def __exit__(self, *raised: object) -> None:
        if self._stacks is not None:
            self._stacks.close()
        self._stacks = None

    def beat(self, at: str, *, always: bool = False) -> None:
        """Something was done; ``at`` says what came last. ``always``: it counts, however soon after the last one."""
        now = time.monotonic()
        if self._stacks is None or self.limit is None:
            return
        if always or now - self._last >= min(PAUSE_S, self.limit / 2):
            self._last = now
            self._stacks.end(self.what)
            self._stacks.begin(self.what, limit=self.limit, at=at)

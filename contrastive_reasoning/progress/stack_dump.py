"""Writes down where every thread stands once something has lasted too long.

    begin ──── limit ────► a thread writes a line and all stacks, and warns
                    └ + GRACE ────► C code does, where the interpreter is held and no thread of Python gets its turn
    end before: nothing is written

What is watched is not touched: it is neither stopped nor told.
"""

from __future__ import annotations

import faulthandler
import threading
import time
import warnings
from pathlib import Path
from typing import TextIO

GRACE_S = 1.0
"""Seconds by which the stacks that C code writes come later."""


class StackDump:
    """Watches one thing at a time; of a thing within another the outer one counts.

    Args:
        path: the file of the stacks, which is there only where there are some.
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
        """``what`` begins; it may last ``limit`` seconds. ``at`` tells when it was, for the reader."""
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
        assert self._timer is not None, "what is watched has a timer"
        self._timer.cancel()
        with self._lock:
            self._what = None
            if self._sentence and time.monotonic() > self._due + GRACE_S:  # nobody had a turn to say so
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

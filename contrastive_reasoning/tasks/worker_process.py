"""The inside of a worker process: questions come in as lines, a line of JSON goes out for each, ``[status, said]``.

    parent  ──── lines ───→  descriptor 0 ─→ a thread that listens ─→ questions
            ←─── lines ────  a copy of descriptor 1, where only replies go

It ends when its input does, so with its parent, even in the middle of a question; the interrupt key is not its
business, and what a library prints or reads stands between no two lines. Nothing here imports torch.
"""

from __future__ import annotations

import ctypes
import json
import os
import queue
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TextIO

READY = "ready"
DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of Linux's prctl."""


class Conversation:
    """The two pipes of this process; made once, before anything else is loaded."""

    def __init__(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _end_with_parent()
        self._replies = os.fdopen(_kept_apart(sys.stdout.fileno(), os.O_WRONLY), "w", encoding="ascii")
        heard = os.fdopen(_kept_apart(sys.stdin.fileno(), os.O_RDONLY), encoding="ascii")
        self._questions: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._listen, args=(heard,), daemon=True).start()

    def hear(self) -> str:
        """The next line; waits for it."""
        return self._questions.get()

    def say(self, status: str, said: object) -> None:
        print(json.dumps([status, said]), file=self._replies, flush=True)

    def _listen(self, heard: TextIO) -> None:
        for line in heard:
            self._questions.put(line)
        os._exit(0)


def limit_memory(memory: int) -> None:
    """Let the process have ``memory`` bytes of address space, where the platform can limit it."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    except (ImportError, ValueError, OSError):
        return


def memory_in_use() -> int:
    """Bytes of address space of this process; 0 where the platform does not say."""
    with suppress(OSError):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        return pages * os.sysconf("SC_PAGE_SIZE")
    return 0


def _kept_apart(descriptor: int, access: int) -> int:
    """A copy that no child process inherits; nothing comes from or goes to the descriptor itself any more."""
    copy = os.dup(descriptor)
    os.dup2(os.open(os.devnull, access), descriptor)
    return copy


def _end_with_parent() -> None:
    """The end of the input would do, but is not noticed in C code that keeps the interpreter to itself."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)

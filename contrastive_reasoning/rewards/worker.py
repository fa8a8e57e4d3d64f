"""The parent's end of one worker process: start it, ask it, hear from it, kill it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

LAST_BREATH_S = 5.0
"""Seconds between the end of a process's output and its own."""


class WorkerGone(Exception):
    """The process has ended; the exit code says how."""


class Reply(NamedTuple):
    """What a worker says of a question."""

    status: str
    said: Any
    """A reason, or what was asked for."""


class Worker:
    """A process that settles one question at a time. It starts at once and says when it is ready.

    Args:
        command: of the process.
        greeting: lines that it is told before the first question.
    """

    def __init__(self, command: Sequence[str], greeting: bytes) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_environment(),
            # the interrupt key reaches the whole session of a terminal; and what it starts dies with it
            start_new_session=True,
            bufsize=0,
        )
        self.question: int | None = None
        """The number of the question that it holds."""
        self.deadline = float("inf")
        self.ready = False
        self._heard = b""
        self._tell(greeting)

    def fileno(self) -> int:
        """What can be waited for until the worker says something."""
        return _pipe(self.process.stdout).fileno()

    @property
    def has_ended(self) -> bool:
        return self.question is None and self.process.poll() is not None

    def ask(self, number: int, question: bytes, deadline: float) -> None:
        """Send a question, a line without its end, to a ready worker; the deadline is the caller's to watch."""
        self.question, self.deadline = number, deadline
        self._tell(question + b"\n")

    def hear(self) -> Reply | None:
        """A reply that has come in whole; None if there is more to come. Waits only if nothing can be read.

        Raises:
            WorkerGone: if the process has ended.
        """
        read = os.read(self.fileno(), 65536)
        if not read:
            raise WorkerGone(self._end())
        line, end, self._heard = (self._heard + read).partition(b"\n")
        if not end:
            self._heard = line
            return None
        return Reply(*json.loads(line))

    def kill(self) -> None:
        """End the process and all that it started, now; more than once does no harm."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            _pipe(pipe).close()

    def _tell(self, lines: bytes) -> None:
        # where the pipe is broken, the end of its output will say so
        with suppress(BrokenPipeError):
            while lines:
                lines = lines[_pipe(self.process.stdin).write(lines) :]

    def _end(self) -> str:
        try:
            return f"exit code {self.process.wait(LAST_BREATH_S)}"
        except subprocess.TimeoutExpired:
            return "its output closed"


def worker_command(module: str, memory: int) -> list[str]:
    """The command that runs a module of ours as a worker with ``memory`` bytes."""
    return [sys.executable, "-m", module, str(memory)]


def _environment() -> dict[str, str]:
    """The parent's, with the way to this package, and with the same order of sets in every process."""
    root = str(Path(__file__).parents[2])
    path = os.environ.get("PYTHONPATH")
    return os.environ | {"PYTHONPATH": os.pathsep.join([root, path] if path else [root]), "PYTHONHASHSEED": "0"}


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None, "both pipes are opened with the process"
    return pipe

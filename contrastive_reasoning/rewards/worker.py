"""The parent's end of one worker process: start it, ask it, hear from it, kill it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from contrastive_reasoning.tasks.answer import Question

MODULE = "contrastive_reasoning.tasks.answer.worker"
MEMORY = 2 * 2**30
"""Bytes of address space of a worker; one that has loaded sympy needs about a tenth of it."""


class WorkerGone(Exception):
    """The process has ended; the exit code says how."""


class Worker:
    """A process that settles one question at a time. It starts at once and says when it is ready."""

    def __init__(self, command: Sequence[str]) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_environment(),
            # the interrupt key reaches the whole session of a terminal
            start_new_session=True,
            bufsize=0,
        )
        self.question: Question | None = None
        self.deadline = float("inf")
        self.ready = False
        self._heard = b""

    def fileno(self) -> int:
        """What can be waited for until the worker says something."""
        return _pipe(self.process.stdout).fileno()

    @property
    def has_ended(self) -> bool:
        return self.question is None and self.process.poll() is not None

    def ask(self, question: Question, deadline: float) -> None:
        """Send a question to a ready worker; the deadline is the caller's to watch."""
        self.question, self.deadline = question, deadline
        # where the pipe is broken, the end of its output will say so
        with suppress(BrokenPipeError):
            _pipe(self.process.stdin).write(json.dumps(question).encode() + b"\n")

    def hear(self) -> list[str] | None:
        """A message that has come in whole; None if there is more to come. Waits only if nothing can be read.

        Raises:
            WorkerGone: if the process has ended.
        """
        read = os.read(self.fileno(), 65536)
        if not read:
            raise WorkerGone(f"exit code {self.process.wait()}")
        line, end, self._heard = (self._heard + read).partition(b"\n")
        if not end:
            self._heard = line
            return None
        return json.loads(line)

    def kill(self) -> None:
        """End the process now; more than once does no harm."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            _pipe(pipe).close()


def worker_command(memory: int = MEMORY) -> list[str]:
    return [sys.executable, "-m", MODULE, str(memory)]


def _environment() -> dict[str, str]:
    """The parent's, with the way to this package, and with the same order of sets in every process."""
    root = str(Path(__file__).parents[2])
    path = os.environ.get("PYTHONPATH")
    return os.environ | {"PYTHONPATH": os.pathsep.join([root, path] if path else [root]), "PYTHONHASHSEED": "0"}


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None, "both pipes are opened with the process"
    return pipe

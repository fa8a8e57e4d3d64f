"""Runs a command as a process with a time limit and its output in a file, and ends all that it started."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from benchmarks.arms import ROOT
from experiments.system.files import last_line
from experiments.system.secrets import hide_secrets, without_paths

GRACE_SECONDS = 15.0
"""Seconds from the interrupt of a part over its limit to its kill; pytest writes its results in this time."""


def start(command: Sequence[str], *, log: Path, variables: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Starts the command in the repository's root as its own process group. Its output goes to ``log``."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **(variables or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ends a process and all that it started: first by an interrupt, then by a kill."""
    with suppress(ProcessLookupError):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_SECONDS)
        os.killpg(process.pid, signal.SIGKILL)  # also after it has ended: its children may still run
    process.wait()


def run(command: Sequence[str], *, log: Path, seconds: float) -> str | None:
    """Runs the command for at most this many seconds. Returns why it failed, in one line, or None."""
    process = start(command, log=log)
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        return f"stopped at its time limit of {seconds:.0f} s; its last output: {_last_output(log)}"
    finally:
        stop(process)
    return failure(code, log) if code else None


def failure(code: int, log: Path) -> str:
    """Returns the exit code or signal of a process and the last line of its output."""
    how = f"ended by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    return f"{how}: {_last_output(log)}"


def _last_output(log: Path) -> str:
    return shareable(last_line(log, default="no output"))


def shareable(text: str) -> str:
    """Returns the text on one line, without secrets and local paths."""
    return " ".join(without_paths(hide_secrets(text)).split())

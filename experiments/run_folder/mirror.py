"""The process that sends a run folder to MLflow while the run works; this one only starts and stops it.

Training never waits for MLflow, except for at most the ``timeout`` of ``stop_sync`` at the end.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.config.hints import python_command

COMMAND = ("-m", "experiments.track")
LOG_FILE = "mirror.log"
NOT_SENT = "MLflow does not have everything yet; to send the rest:"
NOT_ALL, UNFORESEEN = ": not all was sent ", ", unforeseen:"
FAILURE_LINE = re.compile(rf".+{NOT_ALL}\(|MLflow at |MLflow's ")
"""Matches the lines of the process's log that report a failure."""


def start_sync(folder: Path) -> subprocess.Popen[bytes]:
    """Starts ``mlflow_sync.sync.follow`` as a process for one run folder; it logs to ``mirror.log`` there.

    This process holds the pipe to its standard input. A byte on the pipe, or its end when this process dies, triggers
    the last pass. The sync process has its own session, so that Ctrl-C reaches only the experiment.
    """
    command = [sys.executable, *COMMAND, str(folder), "--follow"]
    with (folder / LOG_FILE).open("ab") as log:
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True)


def stop_sync(process: subprocess.Popen[bytes], timeout: float) -> bool:
    """Triggers the last pass and waits at most ``timeout`` seconds. Returns whether everything was sent."""
    assert process.stdin is not None, "the process was not started by start_sync"
    with contextlib.suppress(BrokenPipeError):  # the process has already ended
        # closing the pipe is not enough: forked data workers may hold it open
        process.stdin.write(b"\n")
        process.stdin.close()
    try:
        return process.wait(timeout) == 0
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False


def sync_apart(folders: Sequence[Path], log: Path, *, timeout: float) -> bool:
    """Sends these folders in a separate process, which appends to ``log``.

    Returns whether it sent everything within ``timeout`` seconds.
    """
    command = [sys.executable, *COMMAND, *map(str, folders)]
    with log.open("ab") as output, contextlib.suppress(subprocess.TimeoutExpired):
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=timeout)
        return done.returncode == 0
    return False


def missing_from_mlflow(folders: Sequence[Path], log: Path) -> str:
    """Returns the message that MLflow lacks data of these folders, with the command to send it and the reason."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    failed = [line.removesuffix(UNFORESEEN) for line in lines if FAILURE_LINE.match(line)]
    reason = "it took longer than logger.patience allows"
    if failed:
        reason = failed[-1].partition(NOT_ALL)[2][1:-1] or failed[-1]
    return f"{NOT_SENT} {sync_command(folders)}\n  {reason}"


def sync_command(folders: Sequence[Path]) -> str:
    """Returns the shell command that sends what MLflow lacks of these folders."""
    return f"{python_command()} {shlex.join([*COMMAND, *map(str, folders)])}"

"""The process that carries a run to MLflow while it trains; the training process only starts and stops it.

MLflow is imported by that process alone. Whatever the tracker does — slow, dead, out of disk — training never waits for
it, except for the few seconds that :func:`stop_mirror` grants at the end; ``python -m experiments.track`` sends what
was missed.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

LOG_FILE = "mirror.log"


def start_mirror(folder: Path | str) -> subprocess.Popen[bytes]:
    """Start ``python -m experiments.track FOLDER --follow`` for one experiment; it logs to ``mirror.log`` there.

    Its standard input is a pipe that we hold: a byte on it, or its end when this process dies, asks for the last pass.
    It has a session of its own, so that Ctrl-C reaches the experiment alone.
    """
    folder = Path(folder)
    with (folder / LOG_FILE).open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "experiments.track", str(folder), "--follow"],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def stop_mirror(process: subprocess.Popen[bytes], timeout: float) -> bool:
    """Ask for the last pass and wait for at most ``timeout`` seconds. True if everything was sent."""
    assert process.stdin is not None, "the process was not started by start_mirror"
    with contextlib.suppress(BrokenPipeError):  # it ended already
        # The byte, not only the end of the pipe: forked data workers may hold the pipe open.
        process.stdin.write(b"\n")
        process.stdin.close()
    try:
        return process.wait(timeout) == 0
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False

"""Our dashboard as a process, and its pages in a browser: Debian's chromium without a window."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[1]
PATIENCE = 600


@contextmanager
def dashboard(folder: Path, *options: str) -> Iterator[int]:
    """``make dashboard`` on ``mlflow.db`` of a folder, with its output in ``server.log``; yields the port."""
    port, log = free_port(), folder / "server.log"
    command = [sys.executable, "-m", "experiments.dashboard", "--port", str(port), "--workers", "1", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MLFLOW_TRACKING_URI": f"sqlite:///{folder / 'mlflow.db'}"}
    with log.open("w") as file:
        server = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=file, stderr=file, start_new_session=True
        )
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
            break
        assert server.poll() is None, log.read_text()
        time.sleep(0.5)
    yield port
    os.killpg(server.pid, signal.SIGTERM)
    server.wait(60)


def opened(address: str, folder: Path) -> str:
    """Returns the DOM of a page after its scripts have ended."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("there is no chromium to open the page in")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
    flags += [f"--user-data-dir={folder / 'chromium'}", "--virtual-time-budget=300000", "--dump-dom"]
    return subprocess.run([chromium, *flags, address], capture_output=True, text=True, check=True, timeout=600).stdout

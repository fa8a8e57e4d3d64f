"""Renders pages in a browser: Debian's chromium without a window."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def opened(address: str, folder: Path) -> str:
    """Returns the DOM of a page after its scripts have ended."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("there is no chromium to open the page in")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
    flags += [f"--user-data-dir={folder / 'chromium'}", "--virtual-time-budget=300000", "--dump-dom"]
    return subprocess.run([chromium, *flags, address], capture_output=True, text=True, check=True, timeout=600).stdout

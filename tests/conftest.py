"""What all tests share: where the recorded reference numbers lie, and one thread for each of several test processes."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

if "PYTEST_XDIST_WORKER" in os.environ:  # torch is not imported yet
    os.environ.setdefault("OMP_NUM_THREADS", "1")

GOLDEN_DATA = Path(__file__).parent / "golden" / "data"


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: the collector of garbage need not walk it in every test."""
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--golden",
        type=Path,
        default=GOLDEN_DATA,
        metavar="DIR",
        help="folder of recorded reference numbers for tests/golden (default: tests/golden/data)",
    )

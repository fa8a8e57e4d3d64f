"""The option that all tests share: where the recorded reference numbers lie."""

from __future__ import annotations

from pathlib import Path

import pytest

GOLDEN_DATA = Path(__file__).parent / "golden" / "data"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--golden",
        type=Path,
        default=GOLDEN_DATA,
        metavar="DIR",
        help="folder of recorded reference numbers for tests/golden (default: tests/golden/data)",
    )

"""What all tests share: checked shapes, where the recorded numbers lie, one thread for each of several processes."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
from jaxtyping import install_import_hook

if "PYTEST_XDIST_WORKER" in os.environ:  # torch is not imported yet
    os.environ.setdefault("OMP_NUM_THREADS", "1")

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("contrastive_reasoning", "lightning_modules", "datamodules", "callbacks", "experiments")


def modules_with_shapes() -> list[str]:
    """Those that annotate arrays. To check each call of a search, which takes none, would cost more than the search."""
    files = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    shaped = [path for path in files if "from jaxtyping import" in path.read_text(encoding="utf-8")]
    return [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in shaped]


install_import_hook(modules_with_shapes(), "beartype.beartype")

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

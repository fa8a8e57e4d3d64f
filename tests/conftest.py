"""Shared by all tests: shape checks, the folder of golden data, and one thread per pytest-xdist worker."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from jaxtyping import install_import_hook

from tests.forking import Forks, forks

if "PYTEST_XDIST_WORKER" in os.environ:  # must be set before torch is imported
    os.environ.setdefault("OMP_NUM_THREADS", "1")

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("contrastive_reasoning", "lightning_modules", "datamodules", "callbacks", "experiments")


def modules_with_shapes() -> list[str]:
    """Returns the modules that annotate arrays.

    Checking each call of a search, which takes no arrays, would cost more than the search itself.
    """
    files = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    shaped = [path for path in files if "from jaxtyping import" in path.read_text(encoding="utf-8")]
    return [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in shaped]


install_import_hook(modules_with_shapes(), "beartype.beartype")

collect_ignore = ["cases"]
"""Files that tests read; some of them are tests of other folders."""
GOLDEN_DATA = Path(__file__).parent / "golden" / "data"


def pytest_collection_finish() -> None:
    """Excludes imported and collected objects from garbage collection, because they live until the end."""
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--golden",
        type=Path,
        default=GOLDEN_DATA,
        metavar="DIR",
        help="folder of recorded reference numbers for tests/golden (default: tests/golden/data)",
    )


@pytest.fixture(scope="session")
def command_line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """Runs whole command lines without a new import of everything."""
    with forks(["experiment=llama_critic"], tmp_path_factory.mktemp("said") / "log") as started:
        yield started


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Makes SIGINT raise KeyboardInterrupt, also in a background job of a shell, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)

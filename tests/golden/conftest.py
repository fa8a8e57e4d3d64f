"""Recorded reference numbers: every known file of the folder ``--golden DIR`` is compared, row by row.

A test that compares rows of a file names the file in a marker, and gets one row at a time:

    @golden_rows("oracle.jsonl")                    # a JSONL file
    @golden_rows("infonce_critic.json", "cases")    # a list inside a JSON file
    def test_it(golden_row: dict) -> None: ...

where ``golden_rows = pytest.mark.golden_rows``. A test of a whole file takes the fixture ``golden_file`` and calls
``golden_file("name.json")``. If the folder lacks a known file, its tests are skipped with its name as the reason. A
folder without any known file is an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

KNOWN = (
    "countdown_traces.jsonl",
    "countdown_verifier.jsonl",
    "oracle.jsonl",
    "infonce_critic.json",
    "countdown_meta.json",
    "policy_losses.json",
    "clipo_losses.json",
    "math_verify.jsonl",
)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "golden_rows(file, *keys): one test for each row of a recorded file")
    check_folder(config.getoption("--golden"))


def check_folder(folder: Path) -> None:
    """Raises an error if the folder does not exist or contains no known file, so that no test passes silently."""
    if not folder.is_dir():
        raise pytest.UsageError(f"--golden {folder}: no such folder")
    if not any((folder / name).is_file() for name in KNOWN):
        raise pytest.UsageError(f"--golden {folder} holds none of {', '.join(KNOWN)}")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marker = metafunc.definition.get_closest_marker("golden_rows")
    if marker is None:
        return
    name, *keys = marker.args
    path = metafunc.config.getoption("--golden") / name
    if path.is_file():
        rows = read_rows(path, *keys)
        params = [pytest.param(row, id=row_id(row, index)) for index, row in enumerate(rows)]
    else:
        params = [pytest.param(None, id="absent", marks=pytest.mark.skip(reason=absent(path)))]
    metafunc.parametrize("golden_row", params)


@pytest.fixture(scope="session")
def golden_dir(request: pytest.FixtureRequest) -> Path:
    """The folder of recorded files."""
    return request.config.getoption("--golden")


@pytest.fixture(scope="session")
def golden_file(golden_dir: Path) -> Callable[[str], Path]:
    """``golden_file(name)`` is the path of a recorded file; without this file the test is skipped."""

    def path_of(name: str) -> Path:
        path = golden_dir / name
        if not path.is_file():
            pytest.skip(absent(path))
        return path

    return path_of


@pytest.fixture(scope="session")
def golden_reading() -> tuple[Callable[[Path], None], Callable[..., list[dict[str, Any]]]]:
    """``check_folder`` and ``read_rows``, for the tests of their errors."""
    return check_folder, read_rows


@cache
def read_rows(path: Path, *keys: str) -> list[dict[str, Any]]:
    """The rows of a JSONL file, or the list under ``keys`` in a JSON file; never empty."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".jsonl":
        rows = [_read_line(path, number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    else:
        rows = json.loads(text)
        for key in keys:
            rows = rows[key]
    if not rows:
        raise pytest.UsageError(f"{path} holds no rows{' under ' + '.'.join(keys) if keys else ''}")
    return rows


def row_id(row: dict[str, Any], index: int) -> str:
    """The test id of a row: its id, name, kind and variant if present, else its index in the file."""
    words = [str(row[key]) for key in ("id", "name", "kind", "variant") if key in row]
    return "-".join(words) or str(index)


def absent(path: Path) -> str:
    return f"{path.name} is not in {path.parent}"


def _read_line(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise pytest.UsageError(f"{path}, line {number} is not JSON: {error}") from error

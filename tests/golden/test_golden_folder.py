"""A folder that cannot be compared is an error, never a silent pass."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def run_golden(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-o", "addopts=--import-mode=importlib"]
    golden = Path(__file__).parent
    return subprocess.run(
        [*command, str(golden / "test_oracle.py"), "--golden", str(folder)],
        cwd=golden.parent.parent,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "holds none of countdown_traces.jsonl"),
        ({"oracle.jsonl": '{"nums": [1, 2], "target": 3}\n{"nums": '}, "oracle.jsonl, line 2 is not JSON"),
    ],
)
def test_a_folder_that_cannot_be_compared_is_an_error(tmp_path: Path, files: dict[str, str] | None, words: str) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    result = run_golden(tmp_path)
    assert result.returncode not in (0, 5)
    assert words in result.stdout + result.stderr

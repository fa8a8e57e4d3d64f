"""Shell scripts and the Dockerfile pass the checks of shellcheck and hadolint."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
LINTED = {"shellcheck": [".ci/run", "docs/train.sbatch"], "hadolint": ["Dockerfile"]}
"""Linter → its files."""


def lint(linter: str, *files: Path) -> subprocess.CompletedProcess[str]:
    program = shutil.which(linter, path=str(BIN)) or shutil.which(linter)
    if program is None:
        pytest.skip(f"{linter} is not installed: make setup installs it")
    return subprocess.run([program, *files], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("linter", LINTED)
def test_linter_accepts_files_of_the_repository(linter: str) -> None:
    done = lint(linter, *map(Path, LINTED[linter]))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("linter", "text"), [("shellcheck", "#!/bin/bash\nrm -r $1\n"), ("hadolint", "FROM python:latest\n")]
)
def test_linter_rejects_a_faulty_file(linter: str, text: str, tmp_path: Path) -> None:
    (file := tmp_path / "Dockerfile").write_text(text)
    assert lint(linter, file).returncode != 0


def test_every_shell_script_is_linted() -> None:
    folders = (".ci", "benchmarks", "conf", "contrastive_reasoning", "docs", "experiments", "tests")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    scripts = [
        path for path in files if path.read_bytes()[:2] == b"#!" and b"sh" in path.read_bytes().partition(b"\n")[0]
    ]
    assert sorted(path.relative_to(ROOT).as_posix() for path in scripts) == LINTED["shellcheck"]

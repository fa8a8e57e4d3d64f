"""The wheel in an empty environment of each declared Python: it installs with the constraints, and a job runs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.integration.test_extras import need_index, pip
from tests.integration.test_packaging import PACKAGES, build

ROOT = Path(__file__).resolve().parents[2]
CLASSIFIERS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
DECLARED = [found[1] for name in CLASSIFIERS if (found := re.search(r"Python :: (3\.\d+)$", name))]
OURS = f"{sys.version_info.major}.{sys.version_info.minor}"
CONSTRAINTS = ROOT / "constraints.txt"
PYTHONS = [
    pytest.param(version, marks=pytest.mark.whole if version == OURS else pytest.mark.slow) for version in DECLARED
]


def interpreter(version: str) -> str | None:
    """An interpreter of this version that starts. With pyenv, the link of a version that is not selected does not."""
    if version == OURS:
        return sys.executable
    kept = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    for found in [shutil.which(f"python{version}"), *map(str, kept)]:
        if found and subprocess.run([found, "--version"], capture_output=True, check=False).returncode == 0:
            return found
    return None


def test_current_python_is_declared() -> None:
    assert OURS in DECLARED


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("source")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, source / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    return build(source, "wheel", tmp_path_factory.mktemp("wheel"))


@pytest.mark.parametrize("version", PYTHONS)
def test_main_job_runs_from_wheel_in_empty_environment(version: str, wheel: Path, tmp_path: Path) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"there is no python{version} on this machine")
    need_index()
    own, empty = tmp_path / "own", tmp_path / "empty"
    empty.mkdir()
    subprocess.run([python, "-m", "venv", own], check=True)
    torch = re.search(r"^torch==[^+;\s]+", CONSTRAINTS.read_text(), flags=re.MULTILINE)
    assert torch is not None
    done = pip(own / "bin" / "python", "--no-compile", "--constraint", str(CONSTRAINTS), torch[0], str(wheel))
    assert done.returncode == 0, done.stderr

    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    command = [str(own / "bin" / "contrastive-reasoning"), "exp", "llama_critic", "debug=fast"]
    ran = subprocess.run(command, cwd=empty, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    (record,) = empty.glob("outputs/runs/*/*/summary.json")
    metrics = json.loads(record.read_text())["metrics"]
    assert metrics.keys() >= {"warm_start", "critic", "grpo", "evaluate"}
    assert 0 <= metrics["evaluate"]["test/verifier/accuracy"] <= 1
    described = json.loads((record.parent / "environment.json").read_text())
    assert described["python"].split()[1].startswith(f"{version}.")

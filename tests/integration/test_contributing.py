"""The walks of CONTRIBUTING.md: new files in a copy of the repository, without a change to any other file."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.config.folders import OURS
from experiments.run_folder.reader import read_metrics
from tests.forking import SHORT

ROOT = Path(__file__).resolve().parents[2]
CASES = ROOT / "tests" / "cases" / "walks"
EXAMPLES = ROOT / "docs" / "examples"
GENERAL = ("tests/test_imports.py", "tests/test_config_files.py")
"""Tests that check every file of the repository."""


WALKS = {
    "A reward": "tests/unit/rewards/test_vowels.py",
    "An objective": "tests/unit/objectives/test_unclipped.py",
    "A critic": "tests/unit/critics/test_bag.py",
    "A task": "tests/unit/tasks/test_echo.py",
}
"""Section of the page → the test of its new part. That of a sweep adds a file only."""
TRAINED = ["task=echo", "reward=vowels", "objective=unclipped"]
"""test_walks.py trains with the critic."""
METRICS = {"train/reward/verifier", "train/reward/vowels", "train/objective/ratio_mean"}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository with the files of all walks."""
    folder = tmp_path_factory.mktemp("stranger")
    for name in (*OURS, "benchmarks", "conf", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "constraints.txt", "README.md"):
        shutil.copy(ROOT / name, folder / name)
    for walk in sorted(CASES.iterdir()):
        for file in (path for path in walk.rglob("*") if path.is_file()):
            add(folder / file.relative_to(walk), file.read_text(encoding="utf-8"))
    for source, place in (
        ("bag.py", "contrastive_reasoning/critics/bag.py"),
        ("conf/critic/bag.yaml", "conf/critic/bag.yaml"),
        ("test_bag.py", "tests/unit/critics/test_bag.py"),
    ):
        text = (EXAMPLES / source).read_text(encoding="utf-8")
        add(folder / place, text.replace("docs.examples.bag", "contrastive_reasoning.critics.bag"))
    return folder


def add(file: Path, text: str) -> None:
    assert not file.exists(), f"a walk adds files and changes none: {file}"
    file.write_text(text, encoding="utf-8")


def test_page_has_these_sections() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    titles = re.findall(r"^## (.+)$", text, re.M)
    assert [title for title in titles if title in WALKS or title == "A sweep"] == [*WALKS, "A sweep"]


@pytest.mark.whole
def test_existing_tests_discover_and_accept_the_new_files(copy: Path) -> None:
    """Those of all files, the contract of the objective, and the sweep."""
    tests = [
        *GENERAL,
        *WALKS.values(),
        "tests/contract/test_objectives.py",
        "tests/test_configs.py::test_every_value_of_sweep_composes[kl]",
    ]
    chosen = ["-k", "unclipped or not test_objectives"]
    command = [sys.executable, "-m", "pytest", "-c", "pyproject.toml", "-v", "-p", "no:cacheprovider", *chosen, *tests]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.findall(r"^(tests/\S+) PASSED", done.stdout, re.M)
    assert any("unclipped" in name for name in passed if name.startswith("tests/contract/test_objectives.py"))
    assert [test for test in tests if not any(name.startswith(test) for name in passed)] == []


@pytest.mark.whole
def test_new_parts_train_and_log_their_metrics(copy: Path) -> None:
    small = ("debug=fast", "logger.mirror=false", *SHORT, "stages=[grpo]")
    command = [sys.executable, "-m", "experiments.run", "experiment=grpo_laptop", *TRAINED, *small]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (stage,) = (copy / "outputs" / "stages" / "grpo").iterdir()
    assert {measured.name for measured in read_metrics(stage)} >= METRICS

"""The walks of CONTRIBUTING.md: new files in a copy of the repository, without a change to any other file."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from experiments.config.folders import OURS
from experiments.run_folder.reader import read_json, read_metrics
from tests.integration.forking import Forks, forks

ROOT = Path(__file__).resolve().parents[2]
CASES = ROOT / "tests" / "cases" / "walks"
EXAMPLES = ROOT / "docs" / "examples"
GENERAL = ("tests/test_imports.py", "tests/test_config_files.py")
"""Tests that check every file of the repository."""


class Walk(NamedTuple):
    override: str
    """Uses the new part."""
    test: str
    """Of the new part."""
    metric: str
    """Logged by a run with it."""
    experiment: str = "llama_baseline"
    stages: str = "[grpo]"


WALKS = {
    "A reward": Walk("reward=vowels", "tests/unit/rewards/test_vowels.py", "train/reward/vowels"),
    "An objective": Walk(
        "objective=unclipped", "tests/unit/objectives/test_unclipped.py", "train/objective/ratio_mean"
    ),
    "A critic": Walk(
        "critic=bag", "tests/unit/critics/test_bag.py", "train/reward/critic", "llama_critic", "[critic,grpo]"
    ),
    "A task": Walk("task=echo", "tests/unit/tasks/test_echo.py", "train/reward/verifier", "grpo_laptop"),
}
"""Section of the page → its walk. That of a sweep adds a file only."""


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
    """Those of all files, the contract of objectives, every sibling of one experiment, and every sweep."""
    tests = [
        *GENERAL,
        *(walk.test for walk in WALKS.values()),
        "tests/contract/test_objectives.py",
        "tests/test_configs.py::test_experiment_builds_with_every_sibling[llama_baseline-laptop]",
        "tests/test_configs.py::test_every_value_of_sweep_composes[kl]",
    ]
    command = [sys.executable, "-m", "pytest", "-c", "pyproject.toml", "-v", "-p", "no:cacheprovider", "-m", "", *tests]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.findall(r"^(tests/\S+) PASSED", done.stdout, re.M)
    assert any("unclipped" in name for name in passed if name.startswith("tests/contract/test_objectives.py"))
    assert [test for test in tests if not any(name.startswith(test) for name in passed)] == []


@pytest.fixture(scope="module")
def train(copy: Path) -> Iterator[Forks]:
    with forks(["experiment=llama_critic"], copy / "log", source=copy) as started:
        yield started


@pytest.mark.whole
@pytest.mark.parametrize("title", WALKS)
def test_new_part_trains_and_logs_its_metric(title: str, train: Forks, copy: Path) -> None:
    walk = WALKS[title]
    name = walk.override.partition("=")[2]
    small = ("debug=fast", "logger.mirror=false", f"stages={walk.stages}", f"name={name}")
    ended = train(f"experiment={walk.experiment}", walk.override, *small, folder=str(copy))
    assert ended == 0, train.log.read_text(encoding="utf-8")
    (folder,) = (copy / "outputs" / "runs" / name).iterdir()
    stage = copy / read_json(folder / "stages.json")["grpo"]["folder"]
    assert walk.metric in {measured.name for measured in read_metrics(stage)}

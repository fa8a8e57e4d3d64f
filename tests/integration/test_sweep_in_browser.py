"""From a sweep to its pages in a browser, with the commands of a user."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from urllib.parse import urljoin

import pytest

from tests.browser import dashboard, opened

ROOT = Path(__file__).resolve().parents[2]
SHARED = ("debug=fast", "stages=[warm_start,grpo,evaluate]", "logger.patience=300", "seed=0")
"""Real stages that take seconds."""
GROUPS = "rollout.group_size=2,4"
SWEEPS = {
    "clipo_laptop": (GROUPS, "reward.temperature=0.2,0.05", "budget.clipo.warmup_steps=1"),
    "grpo_laptop": (GROUPS,),
}
PNG = b"\x89PNG"


def run_module(module: str, *arguments: str, folder: Path) -> str:
    """The output of a command that runs in ``folder``."""
    command = [sys.executable, "-m", f"experiments.{module}", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MLFLOW_TRACKING_URI": f"sqlite:///{folder / 'mlflow.db'}"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """CLIPO by temperature and group size, only the verifier by group size, and the comparison of both."""
    folder = tmp_path_factory.mktemp("swept")
    for name, swept in SWEEPS.items():
        run_module("run", "-m", f"experiment={name}", *SHARED, *swept, folder=folder)
    axes = "by=experiment,reward.temperature,rollout.group_size"
    run_module("compare", "clipo_laptop", "grpo_laptop", axes, "metric=test/verifier/accuracy_sampled", folder=folder)
    return folder


@pytest.fixture(scope="module")
def output(folder: Path) -> Iterator[str]:
    """The output of ``make dashboard``, while its server runs."""
    with dashboard(folder):
        yield (folder / "server.log").read_text()


def page_and_pictures(address: str, folder: Path) -> tuple[str, dict[str, bytes]]:
    """The page at an address as text, and the pictures of its description by name."""
    page = opened(address, folder)
    sources = [unescape(source) for source in re.findall(r'<img[^>]* src="(get-artifact[^"]*)"', page)]
    pictures = {}
    for source in sources:
        with urllib.request.urlopen(urljoin(address.partition("#")[0], source), timeout=60) as answer:
            pictures[re.findall(r"path=([^&]*)", source)[0]] = answer.read()
    return page, pictures


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "heat_map", "shown"),
    [
        ("sweep", "heat_map.png", ("reward.temperature", "rollout.group_size", "tokens")),
        ("comparison", "test-verifier-accuracy_sampled-heat-map.png", ("clipo_laptop", "grpo_laptop")),
    ],
)
def test_pages_of_sweep_and_comparison_show_heat_map_and_table(
    output: str, folder: Path, kind: str, heat_map: str, shown: tuple[str, ...]
) -> None:
    (address,) = re.findall(rf"^The newest {kind} of clipo_laptop: (\S+)$", output, re.MULTILINE)
    page, pictures = page_and_pictures(address, folder)
    assert heat_map in pictures
    assert all(content.startswith(PNG) for content in pictures.values()), "the server has each picture of the page"
    table = page[page.index("<table") :]
    assert all(word in table for word in shown)


@pytest.mark.slow
def test_sweep_tables_have_each_point_and_its_token_cost(folder: Path) -> None:
    tables = [path for path in folder.glob("outputs/sweeps/*/summary.csv") if "reward.temperature" in path.read_text()]
    (written,) = tables
    points = [(row["reward.temperature"], row["rollout.group_size"]) for row in csv.DictReader(written.open())]
    assert sorted(points) == [("0.05", "2"), ("0.05", "4"), ("0.2", "2"), ("0.2", "4")]
    costs = {
        row["rollout.group_size"]: float(row["mean"])
        for row in csv.DictReader((written.parent / "metrics.csv").open())
        if row["metric"] == "train/spent/tokens"
    }
    assert costs["4"] > costs["2"], "a larger group costs more"

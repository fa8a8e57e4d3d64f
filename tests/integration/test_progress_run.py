"""Progress output of a run: lines of JSON, quiet, and on several ranks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from experiments.config.stages import STAGES

SMALL = [
    "experiment=llama_critic",
    "debug=fast",
    "policy.pretrained=null",
    "policy.corpus.plays=50",
    "logger.mirror=false",
]
EVERY_LINE = ["progress=json", "progress.seconds_between_lines=0"]
pytestmark = pytest.mark.slow  # unit tests cover the display of a phase
KEYS = {"stage", "phase", "step", "steps", "unit", "seconds_gone", "seconds_left", "rate"}


def run(output: Path, *overrides: str) -> str:
    """Run one experiment by the command line; its output."""
    done = subprocess.run(
        [sys.executable, "-m", "experiments.run", *overrides, f"output_dir={output}"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "it/s]" not in done.stderr, "a library shows a progress bar of its own beside ours"
    return done.stdout


def objects(output: str) -> list[dict[str, Any]]:
    """The lines of JSON, which begin with a brace, parsed strictly."""

    def reject(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return [json.loads(line, parse_constant=reject) for line in output.splitlines() if line.startswith("{")]


def own_steps(found: list[dict[str, Any]], stage: str) -> list[dict[str, Any]]:
    """The lines of a stage that count its own steps."""
    return [line for line in found if line["stage"] == stage and line["phase"] is None]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("outputs")


@pytest.fixture(scope="module")
def progress_lines(outputs: Path) -> list[dict[str, Any]]:
    """The JSON lines of a whole run."""
    return objects(run(outputs, *SMALL, *EVERY_LINE))


def summary(outputs: Path) -> dict[str, dict[str, float]]:
    """The metrics of the newest run."""
    return json.loads(max(outputs.glob("runs/*/*/summary.json")).read_text())["metrics"]


def test_every_stage_reports_steps_rate_and_time_left(progress_lines: list[dict[str, Any]]) -> None:
    assert all(line.keys() >= KEYS for line in progress_lines)
    assert list(dict.fromkeys(line["stage"] for line in progress_lines)) == list(STAGES)
    for stage in STAGES:
        lines = own_steps(progress_lines, stage)
        assert all(before["step"] <= after["step"] for before, after in pairwise(lines))
        last = lines[-1]
        assert last["step"] == last["steps"] > 0, stage
        assert last["seconds_left"] == 0
        assert last["rate"] > 0
    validations = [line for line in progress_lines if line["phase"] == "validating"]
    assert {line["stage"] for line in validations} == {"warm_start", "critic", "grpo"}


def test_grpo_reports_success_and_whole_reward(progress_lines: list[dict[str, Any]], outputs: Path) -> None:
    last, logged = own_steps(progress_lines, "grpo")[-1], summary(outputs)["grpo"]
    for name in ("train/reward/verifier", "train/reward/outcome", "val/verifier/accuracy"):
        assert last[name] == pytest.approx(logged[name]), name


def test_evaluation_counts_problems_and_ends_with_logged_metrics(
    progress_lines: list[dict[str, Any]], outputs: Path
) -> None:
    lines, logged = own_steps(progress_lines, "evaluate"), summary(outputs)["evaluate"]
    assert {(line["unit"], line["steps"]) for line in lines} == {("problems", 8)}, "four, before training and after"
    assert {line["step"] for line in lines} >= set(range(1, 9))
    halves = ("start", 4), ("test", 8)
    for split, problems in halves:
        (*_, last) = (line for line in lines if f"{split}/verifier/accuracy" in line)
        assert last["step"] == problems
        for name in (f"{split}/verifier/accuracy", f"{split}/verifier/accuracy_sampled"):
            assert last[name] == pytest.approx(logged[name]), name


def test_quiet_prints_only_start_and_end_of_stages_and_reuses_them(
    progress_lines: list[dict[str, Any]], outputs: Path
) -> None:
    output = run(outputs, *SMALL, "progress=quiet", "objective.kl_weight=0.25").splitlines()
    for stage in [*STAGES][:2]:
        assert any(line.startswith(f"{stage}: reusing ") for line in output), "how it is shown is no part of a stage"
    for stage in [*STAGES][2:]:
        assert any(line.startswith(f"{stage}: running in ") for line in output)
        assert any(line.startswith(f"{stage}: done after 0:") for line in output)
    for word in (" gone", " left", "steps/s", "problems/s", "{"):
        assert not any(word in line for line in output), word


def test_search_for_critic_data_reports_its_rate(tmp_path: Path) -> None:
    found = objects(run(tmp_path, "experiment=critic_numeric_v2", "debug=fast", "logger.mirror=false", *EVERY_LINE))
    searching = [line for line in found if line["phase"] == "searching"]
    assert [line["step"] for line in searching] == sorted({line["step"] for line in searching})
    assert searching[-1]["step"] == searching[-1]["steps"] == 200
    assert {(line["stage"], line["unit"]) for line in searching} == {("critic", "trajectories")}
    assert all(line["rate"] > 0 for line in searching)


def test_first_rank_reports_progress_of_all_ranks(tmp_path: Path) -> None:
    only = ["experiment=llama_baseline", "debug=fast", "stages=[evaluate]", "logger.mirror=false", "trainer=ddp"]
    lines = own_steps(objects(run(tmp_path, *only, *EVERY_LINE)), "evaluate")
    steps = [line["step"] for line in lines]
    assert steps == sorted(steps), "one rank alone speaks"
    assert set(steps) >= {2, 4}, "of four problems each has two"
    assert {line["steps"] for line in lines} == {4}
    logged = summary(tmp_path)["evaluate"]
    assert lines[-1]["test/verifier/accuracy"] == pytest.approx(logged["test/verifier/accuracy"])

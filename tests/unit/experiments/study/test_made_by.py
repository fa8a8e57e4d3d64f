"""By what code and on what the stages of a run were made: a reused one keeps its own, whatever run reuses it."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from experiments.study.report import report
from experiments.tracking.environment import processor

FLAT = {0: 0.2, 10: 0.2}


def test_a_reused_stage_keeps_its_commit_and_its_processor(runs: Any, tmp_path: Path) -> None:
    runs.add("plain", 0, solved=[0, 1], curve=FLAT, git_sha="new", made_by={"git_sha": "old", "processor": "P 1"})
    runs.add("better", 0, solved=[0, 1], curve=FLAT, git_sha="new", made_by={"git_sha": "new", "processor": "P 2"})
    lines = report(runs.tracker, runs.study(seeds=1), marks=runs.marks, output=tmp_path)
    assert "Made by different code: [old] plain 0; [new] better 0." in lines
    assert "The arms were not tested alike: processor differ." in lines
    with (tmp_path / runs.name / "study_runs.csv").open() as file:
        assert [(line["processor"], line["git_sha"]) for line in csv.DictReader(file)] == [
            ("P 1", "old"),
            ("P 2", "new"),
        ]


@pytest.mark.parametrize("said", [{"git_sha": "abc", "processor": "P"}, None])
def test_runs_of_before_are_of_their_own_commit(runs: Any, tmp_path: Path, said: dict[str, str] | None) -> None:
    runs.add("plain", 0, solved=[0, 1], curve=FLAT)
    runs.add("better", 0, solved=[0, 1], curve=FLAT, made_by=said)
    lines = report(runs.tracker, runs.study(seeds=1), marks=runs.marks, output=tmp_path)
    assert not any("Made by" in line or "processor" in line for line in lines)


def test_the_processor_has_a_name() -> None:
    assert processor().strip()

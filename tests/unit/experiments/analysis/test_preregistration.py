"""Which runs of a preregistered study count in ``make report`` and in ``make compare`` with arguments."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from experiments.compare import main as compare
from experiments.jobs.finished import Today
from experiments.report import main as report

FLAT = {0: 0.2, 10: 0.2}
GREEDY = "test/verifier/accuracy"


@pytest.fixture
def counting(runs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Returns a function that writes the study's file. Runs of today's configuration count."""
    for module in ("jobs.finished", "analysis.study_report"):
        monkeypatch.setattr(f"experiments.{module}.today", lambda *_: Today(runs.marks, {}))
    monkeypatch.chdir(tmp_path)
    return lambda **kwargs: runs.file(tmp_path, **kwargs)


@pytest.fixture
def file(runs: Any, counting: Callable[..., Path]) -> Path:
    """A study with a stale run that solved nothing and is newer than the others. No arm is named ``…baseline``."""
    for seed in (0, 1):
        runs.add("plain", seed, solved=[0, 1, 0, seed], curve=FLAT, pretrained="abc"[seed])
        runs.add("better", seed, solved=[1, 1, 0, 1], curve=FLAT, pretrained="abc"[seed])
    runs.add("plain", 2, solved=[1, 1, 1, 1], curve=FLAT, pretrained="c")
    late = {"configuration": "another", "time": "2026-01-02T00-00-00"}
    runs.add("better", 1, solved=[0, 0, 0, 0], curve=FLAT, **late)
    return counting(seeds=3, start={"overrides": [], "seed": "each"})


def rows(name: str) -> dict[str, dict[str, str]]:
    with (Path("outputs") / "compare" / name / f"{GREEDY.replace('/', '-')}.csv").open() as table:
        return {line["arm"]: line for line in csv.DictReader(table)}


def test_compare_with_arguments_uses_only_runs_that_count(runs: Any, file: Path, capsys: Any) -> None:
    assert compare([str(file), "sets=main"]) == 0
    found = rows(runs.name)
    assert (found["plain"]["mean"], found["plain"]["seeds"]) == (str((0.25 + 0.5 + 1.0) / 3), "3")
    better = found["better"]
    assert (better["mean"], better["seeds"]) == ("0.75", "2")
    assert (better["delta"], better["delta_method"], better["delta_to"]) == ("0.375", "paired", "plain")
    assert compare([str(file), "baseline=better"]) == 0
    found = rows(runs.name)
    assert (found["plain"]["delta"], found["better"]["delta"]) == ("-0.375", "")
    output = capsys.readouterr().out
    assert f"Of the study {runs.name} the runs of today's configuration count; " in output
    assert "1 run of another configuration left out: better 1." in output
    assert "counts as one arm, but differs in policy.pretrained" not in output
    assert compare([str(file)]) == 0, "without arguments it is the study's report"
    assert "Primary: test/verifier/accuracy of better minus that of plain" in capsys.readouterr().out


@pytest.mark.parametrize("command", [compare, report])
def test_command_without_comparable_runs_prints_reason(
    runs: Any, counting: Callable[..., Path], capsys: Any, command: Callable[[list[str]], int]
) -> None:
    runs.add("better", 0, solved=[0, 1], curve=FLAT, configuration="another")
    file = counting()
    assert command([str(file), f"metric={GREEDY}"]) == 2
    assert "1 runs have finished, none of today's configuration" in capsys.readouterr().err
    runs.add("better", 1, solved=[1, 1, 0, 1], curve=FLAT)
    assert command([str(file), f"metric={GREEDY}"]) == 2
    assert capsys.readouterr().err == "The baseline 'plain' is none of the arms; there are: better\n"
    assert command(["/nowhere/mine.yaml"]) == 2
    assert capsys.readouterr().err.startswith("no study '/nowhere/mine.yaml'; there are ")

"""A study's runs in make report, and in make compare with wishes: those that count, by what the study fixed."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from experiments.compare import main as compare
from experiments.report.command import main as report
from experiments.study.finished import Today

FLAT = {0: 0.2, 10: 0.2}
GREEDY = "test/verifier/accuracy"


@pytest.fixture
def file(runs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a study with stale runs that solved all, newer than those of today; the baseline is no ``…baseline``."""
    for module in ("study.side_by_side", "study.report", "report.study"):
        monkeypatch.setattr(f"experiments.{module}.today", lambda *_: Today(runs.marks, {}))
    monkeypatch.chdir(tmp_path)
    for seed in (0, 1):
        runs.add("plain", seed, solved=[0, 1, 0, seed], curve=FLAT, pretrained="abc"[seed])
        runs.add("better", seed, solved=[1, 1, 0, 1], curve=FLAT, pretrained="abc"[seed])
    runs.add("plain", 2, solved=[1, 1, 1, 1], curve=FLAT, pretrained="c")
    late = {"configuration": "another", "time": "2026-01-02T00-00-00"}
    runs.add("better", 1, solved=[0, 0, 0, 0], curve=FLAT, **late)
    return runs.file(tmp_path, seeds=3, start={"overrides": [], "seed": "each"})


def rows(name: str, metric: str) -> dict[str, dict[str, str]]:
    with (Path("outputs") / "compare" / name / f"{metric.replace('/', '-')}.csv").open() as table:
        return {line["arm"]: line for line in csv.DictReader(table)}


@pytest.mark.parametrize(
    "wish", [f"metric={GREEDY}", "sets=main", "curve=val/verifier/accuracy"], ids=["metric", "sets", "curve"]
)
def test_a_comparison_with_wishes_is_of_the_runs_that_count(runs: Any, file: Path, capsys: Any, wish: str) -> None:
    assert compare([str(file), wish]) == 0
    found = rows(runs.name, GREEDY)
    assert {arm: (row["mean"], row["seeds"]) for arm, row in found.items()} == {
        "plain": (str((0.25 + 0.5 + 1.0) / 3), "3"),
        "better": ("0.75", "2"),
    }
    better = found["better"]
    assert (better["delta"], better["delta_method"], better["delta_to"]) == ("0.375", "paired", "plain")
    said = capsys.readouterr().out
    assert f"Of the study {runs.name} the runs of today's configuration count; what it was to tell says" in said
    assert "1 run of another configuration left out: better 1." in said
    assert "counts as one arm, but differs in policy.pretrained" not in said


def test_another_baseline_may_be_wished_for(runs: Any, file: Path) -> None:
    assert compare([str(file), "baseline=better"]) == 0
    found = rows(runs.name, GREEDY)
    assert (found["plain"]["delta"], found["better"]["delta"]) == ("-0.375", "")


def test_without_wishes_the_comparison_is_the_studys_own(runs: Any, file: Path, capsys: Any) -> None:
    assert compare([str(file)]) == 0
    assert "Primary: test/verifier/accuracy of better minus that of plain" in capsys.readouterr().out
    assert (Path("outputs") / "compare" / runs.name / "study.csv").is_file()


def test_the_page_of_a_study_says_what_was_asked_and_what_came_out(runs: Any, file: Path) -> None:
    assert report([str(file)]) == 0
    page = (Path("outputs") / "report" / f"{runs.name}.html").read_text()
    assert page.index("<p>Is it better?</p>") < page.index("<h2>Question</h2>") < page.index("<h2>Results</h2>")
    assert "<p>Primary: test/verifier/accuracy of better minus that of plain, after as many" in page
    assert "better: improved" in page
    assert "1 run of another configuration left out: better 1." in page
    results = page[page.index("<h2>Results</h2>") :]
    assert "75.0 ± 0.0" in results, "the stale run solved nothing"
    assert "Δ to plain" in results
    assert "+37.5 ± " in results, "over the starts that both have; the third seed of the baseline solved all"


def test_a_study_whose_baseline_has_not_finished_has_no_page_yet(
    runs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr("experiments.study.side_by_side.today", lambda *_: Today(runs.marks, {}))
    monkeypatch.setattr("experiments.report.study.today", lambda *_: Today(runs.marks, {}))
    monkeypatch.chdir(tmp_path)
    runs.add("better", 0, solved=[1, 1, 0, 1], curve=FLAT)
    assert report([str(runs.file(tmp_path))]) == 2
    assert capsys.readouterr().err == "The baseline 'plain' is none of the arms; there are: better\n"


@pytest.mark.parametrize("command", [compare, report])
def test_a_study_of_which_no_run_counts_is_answered_in_a_sentence(
    runs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, command: Any
) -> None:
    monkeypatch.setattr("experiments.study.side_by_side.today", lambda *_: Today(runs.marks, {}))
    monkeypatch.chdir(tmp_path)
    runs.add("plain", 0, solved=[0, 1], curve=FLAT, configuration="another")
    file = runs.file(tmp_path)
    assert command([str(file), f"metric={GREEDY}"]) == 2
    assert "1 runs have finished, none of today's configuration" in capsys.readouterr().err


def test_a_file_that_there_is_not_is_answered_in_a_sentence(capsys: Any) -> None:
    for command in (compare, report):
        assert command(["/nowhere/mine.yaml"]) == 2
        assert capsys.readouterr().err.startswith("no study '/nowhere/mine.yaml'; there are ")

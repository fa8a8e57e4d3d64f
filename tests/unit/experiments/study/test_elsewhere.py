"""What a study says of the suite's other settings: read from a real MLflow, and only where all seeds were tested."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from experiments.study.report import report

FLAT = {0: 0.2, 4: 0.2}


def test_each_setting_has_its_columns(runs: Any, tmp_path: Path) -> None:
    for seed, (plain, better) in enumerate([(0.25, 0.5), (0.5, 0.625)]):
        runs.add("plain", seed, solved=[0, 1], curve=FLAT, elsewhere={"larger": plain, "longproc": 0.0})
        runs.add("better", seed, solved=[1, 1], curve=FLAT, elsewhere={"larger": better, "longproc": 0.125})
    report(runs.tracker, runs.study(), marks=runs.marks, output=tmp_path)
    text = (tmp_path / runs.name / "study.md").read_text()
    half = 12.706 * 0.125 / 2 * 100  # t(0.975, 1) · s/√2 of the gains 0.25 and 0.125
    assert "| arm | larger | Δ to plain over seeds | longproc | Δ to plain over seeds |" in text
    assert "| plain | 37.5 | – | 0.0 | – |" in text
    assert f"| better | 56.2 | +18.8 ± {half:.1f} | 12.5 | +12.5 ± 0.0 |" in text
    with (tmp_path / runs.name / "study.csv").open() as file:
        assert [row["elsewhere"] for row in csv.DictReader(file)] == [
            "larger:0.375 longproc:0.0",
            "larger:0.5625 longproc:0.125",
        ]


def test_a_setting_that_a_seed_was_not_tested_in_is_left_out(runs: Any, tmp_path: Path) -> None:
    for seed in (0, 1):
        runs.add("plain", seed, solved=[0, 1], curve=FLAT, elsewhere={"larger": 0.5})
    runs.add("better", 0, solved=[1, 1], curve=FLAT, elsewhere={"larger": 0.5})
    runs.add("better", 1, solved=[1, 1], curve=FLAT)
    report(runs.tracker, runs.study(), marks=runs.marks, output=tmp_path)
    assert "| better | – | – |" in (tmp_path / runs.name / "study.md").read_text()


def test_a_suite_of_one_setting_has_no_such_section(runs: Any, tmp_path: Path) -> None:
    runs.add("plain", 0, solved=[0, 1], curve=FLAT)
    runs.add("better", 0, solved=[1, 1], curve=FLAT)
    report(runs.tracker, runs.study(), marks=runs.marks, output=tmp_path)
    assert "In other settings" not in (tmp_path / runs.name / "study.md").read_text()

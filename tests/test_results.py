"""Records of studies have all sections, and the differences that the pages print are those of the CSVs beside them."""

from __future__ import annotations

import importlib.util
import math
import re
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import ttest_ind

RESULTS = Path(__file__).resolve().parent.parent / "docs" / "results"
SCRIPT = RESULTS / "recompute.py"
RECORD = ["Question", "Set-up", "Table", "Verdict", "What went wrong or is limited", "Commands", "Commit"]
RECORDS = sorted({*RESULTS.glob("*.md")} - {RESULTS / "conventions.md", RESULTS / "overview.md"})


@pytest.fixture(scope="module")
def script() -> Any:
    return loaded(SCRIPT)


def loaded(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("record", RECORDS, ids=lambda path: path.stem)
def test_record_of_a_study_has_its_sections_in_order(record: Path) -> None:
    assert re.findall(r"^## (.+)$", record.read_text(encoding="utf-8"), re.M) == RECORD


def test_printed_differences_equal_recomputed_ones(script: Any, capsys: pytest.CaptureFixture[str]) -> None:
    found = [*script.results()]
    assert [row for row in found if row[1] != row[2]] == []
    assert len(found) > 150
    assert script.main() == 0
    assert "DIFFERS" not in capsys.readouterr().out


def test_every_listed_figure_is_on_its_page_and_every_difference_is_listed(script: Any) -> None:
    assert script.absent() == []
    assert script.unlisted() == []


def test_wrong_figure_is_reported(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = script.figures()[0]
    assert script.recompute(figure._replace(seeds="10-14")) != figure.printed
    monkeypatch.setattr(script, "figures", lambda: [figure._replace(printed="+9.9 ± 0.1")])
    assert script.main() == 1
    assert "README: +9.9 ± 0.1" in script.absent()
    assert f"README: {figure.printed}" in script.unlisted()


def test_paired_interval_is_of_the_differences(script: Any) -> None:
    """Differences 1, 2 and 3: mean 2, standard deviation 1, t of two degrees of freedom 4.303."""
    mean, half = script.paired([11.0, 22.0, 33.0], [10.0, 20.0, 30.0])
    assert mean == pytest.approx(2)
    assert half == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)


def test_welch_interval_equals_scipys(script: Any) -> None:
    ours, theirs = [30.0, 33.0, 28.0], [20.0, 22.0, 25.0, 16.0, 23.0]
    mean, half = script.welch(ours, theirs)
    low, high = ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.95)
    assert (mean - half, mean + half) == pytest.approx((low, high))


@pytest.mark.parametrize(
    ("value", "text"), [((3.94, 2.25), "+3.9 ± 2.3"), ((-0.04, 1.0), "0.0 ± 1.0"), ((-1.25,), "−1.3")]
)
def test_printed_rounds_half_up(script: Any, value: tuple[float, ...], text: str) -> None:
    assert script.printed(*value) == text


def test_dose_response_draws_each_arm_with_values_at_its_mean_and_gain(tmp_path: Path) -> None:
    doses = loaded(SCRIPT.with_name("dose_response.py"))
    table = [("grpo", 0.2, ""), ("grpo", 0.3, ""), ("grpo_more", 0.5, ""), ("a", 0.3, 0.75), ("a", 0.5, 0.7)]
    rows = [
        {"arm": arm, "seed": str(i % 2), "greedy": str(end), "auroc_siblings": str(at)}
        for i, (arm, end, at) in enumerate([*table[:2], table[2], *reversed(table[3:]), ("b", 0.1, 0.5)])
    ]
    (b, a) = doses.arms(rows)
    assert (b.name, b.dose, b.gain, b.half, b.seeds) == ("b", 0.5, pytest.approx(-15.0), None, [])
    assert (a.name, a.dose, a.gain) == ("a", pytest.approx(0.725), pytest.approx(15.0))
    assert sorted(a.seeds) == [(0.7, pytest.approx(20.0)), (0.75, pytest.approx(10.0))]
    assert a.half == pytest.approx(12.7062 * 50**0.5 / 2**0.5, rel=1e-4)
    doses.main(picture=tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000

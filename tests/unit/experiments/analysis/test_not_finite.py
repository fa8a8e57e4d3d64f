"""Runs whose numbers were not finite, through a real MLflow: tables show them as they are, pictures leave a gap."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping
from pathlib import Path

import pytest

from experiments.analysis.curves import CAPTION, GAPS, Curve, draw_curves
from experiments.analysis.seeds import difference, over_seeds
from experiments.compare import compare
from experiments.report.command import main as report
from experiments.track import Tracker
from experiments.tracking.carry import Carrier
from tests.unit.experiments.comparison_kit import PLAIN
from tests.unit.experiments.conftest import Outputs

CURVE = "val/verifier/accuracy_sampled"
NAN, INF = math.nan, math.inf
LOSS = {0: 0.1, 10: NAN, 20: INF, 30: -INF, 40: 0.3}


@pytest.fixture(scope="module")
def names(tracker: Tracker, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """A baseline, and an arm of which one seed ended at infinity, and whose loss was no number for a while."""
    outputs = Outputs(tmp_path_factory.mktemp("diverged"))
    for seed in range(2):
        Carrier(outputs.run("finite", seed=seed, final=0.3 + seed / 50, reward="verifier"), tracker).carry(live=False)
        folder = outputs.run("diverged", seed=seed, final=0.4 if seed else INF)
        stages = json.loads((folder / "stages.json").read_text())
        outputs.log(Path(stages["grpo"]["folder"]), "train/clipo/loss", LOSS)
        Carrier(folder, tracker).carry(live=False)
    return {"baseline": "finite", "diverged": "diverged"}


def test_a_tracker_gives_back_what_was_logged(tracker: Tracker, names: Mapping[str, str]) -> None:
    runs = [run for run in tracker.runs([names["diverged"]], kind="stage") if run.tags["stage"] == "grpo"]
    for run in runs:
        history = dict(tracker.history(run.run_id, "train/clipo/loss"))
        assert math.isnan(history.pop(10))
        assert history == {step: value for step, value in LOSS.items() if step != 10}
    (last,) = {run.metrics["train/clipo/loss"] for run in runs}
    assert last == 0.3


def test_a_comparison_shows_it_and_draws_the_rest(tracker: Tracker, names: Mapping[str, str], tmp_path: Path) -> None:
    compare(tracker, [*names.values()], **PLAIN, output=tmp_path)
    (table,) = tmp_path.rglob("*.csv")
    finite, diverged = csv.DictReader(table.open())
    assert float(finite["mean"]) == pytest.approx(0.31)
    assert (float(diverged["mean"]), diverged["seeds"]) == (INF, "2"), "not the mean of the seed that is left"
    assert math.isnan(float(diverged["half_95"]))
    assert (table.with_suffix(".png").stat().st_size, len(list(tmp_path.rglob("*-gains.png")))) > (1000, 1)
    assert "inf" in table.with_suffix(".md").read_text()


def test_a_report_of_it_is_written(tracker: Tracker, names: Mapping[str, str], tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    assert report([*names.values(), f"output={page}"]) == 0
    assert "inf" in page.read_text()
    assert "1.797" not in page.read_text()


def test_one_that_is_not_finite_leaves_neither_mean_nor_interval() -> None:
    for values, mean in (([0.1, INF], INF), ([0.1, -INF, 0.2], -INF)):
        assert (over_seeds(values).value, math.isnan(over_seeds(values).half)) == (mean, True)
    assert math.isnan(over_seeds([0.1, NAN]).value)
    assert math.isnan(over_seeds([INF, -INF]).value)
    paired = difference({"0": 0.1, "1": INF}, {"0": 0.2, "1": 0.3})
    welch = difference({"0": 0.1, "1": INF}, {"2": 0.2, "3": 0.3})
    assert (paired.value, welch.value) == (INF, INF)
    assert math.isnan(paired.half)
    assert math.isnan(welch.half)


@pytest.mark.parametrize("values", [{0: 0.2, 1: INF, 2: 0.3}, {0: NAN, 1: INF, 2: -INF}])
def test_a_curve_is_drawn_by_its_finite_points(values: Mapping[int, float]) -> None:
    figure = draw_curves([Curve(label="a", seeds=[values, {0: 0.1, 1: 0.2, 2: 0.4}])], metric=CURVE, steps="steps")
    figure.draw_without_rendering()
    low, high = figure.axes[0].get_ylim()
    assert 0 < high - low < 0.6
    assert figure.get_supxlabel().replace("\n", " ") == CAPTION + GAPS


def test_what_stands_alone_between_gaps_is_a_dot() -> None:
    """No line is left of it, neither of a seed nor of the mean."""
    alone, beside = {0: 0.1, 10: NAN, 20: 0.2, 30: INF, 40: 0.3, 50: 0.4}, {step: 0.2 for step in range(0, 60, 10)}
    figure = draw_curves([Curve(label="a", seeds=[alone, beside])], metric=CURVE, steps="steps")
    dots = [line for line in figure.axes[0].lines if line.get_marker() == "."]
    assert [list(line.get_xdata()) for line in dots] == [[0, 20], [0, 20]]
    assert [list(line.get_ydata()) for line in dots] == [pytest.approx([0.15, 0.2]), [0.1, 0.2]]
    (whole,) = (Curve(label="a", seeds=[beside, beside]),)
    lines = draw_curves([whole], metric=CURVE, steps="steps").axes[0].lines
    assert all(line.get_marker() != "." for line in lines)


def test_curves_without_a_finite_point_have_a_frame() -> None:
    figure = draw_curves([Curve(label="a", seeds=[{0: NAN, 1: INF}])], metric=CURVE, steps="steps")
    figure.draw_without_rendering()
    low, high = figure.axes[0].get_ylim()
    assert low < 0 < high

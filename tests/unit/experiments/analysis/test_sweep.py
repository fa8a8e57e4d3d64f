"""The points of a sweep, and their pictures."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from experiments.analysis.statistics import over_seeds
from experiments.analysis.sweep import (
    CAPTION,
    CROSSES,
    Point,
    draw,
    lines_of,
    numeric_keys,
    points_of,
    shared_metric,
    summarise_points,
)

SAMPLED, VALIDATION = "test/verifier/accuracy_sampled", "val/verifier/accuracy_sampled"
PRIMARY = (SAMPLED, VALIDATION)

TAU, GROUP = "reward.temperature", "rollout.group_size"
TAUS = {"0.2": [0.30, 0.32, 0.31], "0.05": [0.41, 0.43, 0.45], "0.02": [0.40]}


def point(values: dict[str, str], seeds: list[float]) -> Point:
    return Point(values=values, seeds={str(seed): value for seed, value in enumerate(seeds)})


POINTS = [point({TAU: tau, GROUP: group}, TAUS[tau]) for group in ("8", "16") for tau in TAUS]


def test_seeds_are_together_the_best_is_first_and_what_is_not_finite_last() -> None:
    values = {2 * t + s: {"tau": tau, "seed": str(s)} for t, tau in enumerate(("0.2", "0.1", "0.3")) for s in range(2)}
    high, low, lost = points_of(values, {0: 0.1, 1: 0.3, 2: 0.5, 3: 0.7, 4: math.nan})
    assert (high.values, high.seeds) == ({"tau": "0.1"}, {"0": 0.5, "1": 0.7})
    assert high.estimate.value == pytest.approx(0.6)
    assert high.estimate.half == pytest.approx(12.706 * 0.1, rel=1e-4), "t(1) · s/√2 of 0.5 and 0.7"
    assert (low.values, lost.values) == ({"tau": "0.2"}, {"tau": "0.3"})


def test_the_metric_is_the_first_that_most_jobs_have() -> None:
    assert shared_metric([{SAMPLED: 0.1, VALIDATION: 0.2}, {SAMPLED: 0.3, VALIDATION: 0.1}], PRIMARY) == SAMPLED
    assert shared_metric([{SAMPLED: 0.1, VALIDATION: 0.2}, {VALIDATION: 0.1}], PRIMARY) == VALIDATION
    assert shared_metric([{"train/loss": 1.0}], PRIMARY) is None


@pytest.mark.parametrize(
    ("means", "pictures"),
    [
        ((0.25, 0.5, 0.375), ["tau.png", "tau.positive_cosine.png"]),
        ((0.3, math.nan, 0.4), ["tau.png", "tau.positive_cosine.png"]),
        ((math.inf,) * 3, ["tau.positive_cosine.png"]),
    ],
)
def test_a_sweep_leaves_a_table_and_pictures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], means: tuple[float, ...], pictures: list[str]
) -> None:
    values = {n: {"tau": tau} for n, tau in enumerate(("0.2", "0.05", "0.02"))}
    cosines = "train/clipo/positive_cosine"
    metrics = {n: {SAMPLED: mean, cosines: 0.3 * n} for n, mean in enumerate(means)}
    lines = summarise_points(tmp_path, values, metrics, primary=PRIMARY)
    assert lines == [f"Written: {tmp_path / name}" for name in ("summary.csv", *pictures)]
    rows = list(csv.DictReader((tmp_path / "summary.csv").open()))
    best_first = sorted(means, key=lambda mean: -mean if math.isfinite(mean) else math.inf)
    assert [row["mean"] for row in rows] == list(map(str, best_first))
    shown = capsys.readouterr().out
    assert [shown.index(f"{mean:.3f}") for mean in best_first] == sorted(shown.index(f"{mean:.3f}") for mean in means)
    assert all((tmp_path / name).stat().st_size > 10_000 for name in pictures)


def test_without_any_primary_metric_it_says_which_were_looked_for(tmp_path: Path) -> None:
    (line,) = summarise_points(tmp_path, {0: {}}, {0: {"train/loss": 0.1}}, primary=PRIMARY)
    assert line == f"no job left any of {SAMPLED}, {VALIDATION}: no table"


def drawn(points: list[Point], key: str) -> Figure:
    figure = draw(points, key=key, metric="test/verifier/accuracy_sampled")
    figure.draw_without_rendering()
    return figure


@pytest.mark.parametrize(
    ("metric", "percent"), [("test/verifier/accuracy", True), ("train/clipo/positive_cosine", False)]
)
def test_only_shares_are_in_percent(metric: str, percent: bool) -> None:
    figure = draw(POINTS[:3], key=TAU, metric=metric)
    figure.draw_without_rendering()
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert [label.endswith("%") for label in labels] == [percent] * len(labels)


def test_a_picture_is_of_numbers_of_which_there_are_three() -> None:
    values = [{**one.values, "reward": "clipo"} for one in POINTS]
    assert numeric_keys(values) == [TAU]
    assert numeric_keys([{"a": "1"}, {"a": "2"}, {"a": "3"}, {"a": "null"}]) == []
    assert numeric_keys([{"a": "1"}, {"a": "2"}, {"a": "nan"}]) == []


def test_where_a_seed_diverged_there_is_no_mean_of_the_others_but_a_cross() -> None:
    """Else the temperature at which a run diverges could look like the best one."""
    diverged = [point({TAU: "0.1", GROUP: "8"}, [0.3, math.inf, 0.49]), point({TAU: "0.5", GROUP: "8"}, [math.nan])]
    figure = drawn([*POINTS[:3], *diverged], TAU)
    axes = figure.axes[0]
    x, y = axes.lines[0].get_data()
    assert list(x) == [0.02, 0.05, 0.1, 0.2, 0.5]
    assert [math.isnan(mean) for mean in y] == [False, False, True, False, True]
    dots = {
        (at, value)
        for line in axes.lines
        if line.get_marker() == "."
        for at, value in zip(*line.get_data(), strict=True)
    }
    assert {value for at, value in dots if at == 0.1 and math.isfinite(value)} == {0.3, 0.49}
    (crosses,) = (line for line in axes.lines if line.get_marker() == "x")
    assert list(crosses.get_xdata()) == [0.1, 0.5]
    low, high = axes.get_ylim()
    assert 0.2 < low < 0.3 < 0.49 < high < 0.6
    assert figure.get_supxlabel().replace("\n", " ") == CAPTION + CROSSES


def test_where_none_diverged_nothing_is_said_of_it() -> None:
    figure = drawn(POINTS[:3], TAU)
    assert figure.get_supxlabel().replace("\n", " ") == CAPTION
    assert all(line.get_marker() != "x" for line in figure.axes[0].lines)


def test_the_other_values_make_the_lines_in_the_order_of_numbers() -> None:
    assert list(lines_of(POINTS, TAU)) == [f"{GROUP}=8", f"{GROUP}=16"]
    assert list(lines_of(POINTS, TAU)[f"{GROUP}=8"]) == [0.02, 0.05, 0.2]


def test_the_line_is_the_mean_and_the_band_its_interval() -> None:
    axes = drawn(POINTS[:3], TAU).axes[0]
    x, y = axes.lines[0].get_data()
    assert list(x) == [0.02, 0.05, 0.2]
    assert list(y) == pytest.approx([0.40, 0.43, 0.31])
    band = axes.collections[0].get_paths()[0].vertices
    expected = over_seeds(TAUS["0.05"])
    assert max(band[:, 1]) == pytest.approx(expected.high)
    assert min(band[:, 0]) == 0.05, "a single seed has no band"


@pytest.mark.parametrize(("values", "scale"), [(("0.015", "0.05", "0.2"), "log"), (("8", "12", "16"), "linear")])
def test_values_over_a_wide_range_have_a_logarithmic_axis(values: tuple[str, ...], scale: str) -> None:
    axes = drawn([point({"key": value}, [0.1, 0.2]) for value in values], "key").axes[0]
    assert axes.get_xscale() == scale
    assert axes.get_xlabel() == "key"
    assert [label.get_text() for label in axes.get_xticklabels()] == list(values), "ticks stand where it was run"


def test_zero_is_drawn_too() -> None:
    axes = drawn([point({"key": value}, [0.1]) for value in ("0", "1", "100")], "key").axes[0]
    assert axes.get_xscale() == "linear"

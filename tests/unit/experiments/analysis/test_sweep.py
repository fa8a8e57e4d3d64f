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
    summarise_points,
)

SAMPLED, VALIDATION = "test/verifier/accuracy_sampled", "val/verifier/accuracy_sampled"
COSINE = "train/clipo/positive_cosine"
TAU, GROUP = "reward.temperature", "rollout.group_size"
TAUS = {"0.2": [0.30, 0.32, 0.31], "0.05": [0.41, 0.43, 0.45], "0.02": [0.40]}
POINTS = [Point(values={TAU: tau, GROUP: group}, seeds=TAUS[tau]) for group in ("8", "16") for tau in TAUS]


def test_seeds_are_together_the_best_is_first_and_what_is_not_finite_last() -> None:
    values = {2 * t + s: {"tau": tau, "seed": str(s)} for t, tau in enumerate(("0.2", "0.1", "0.3")) for s in range(2)}
    metrics = {number: {"x": value} for number, value in enumerate((0.1, 0.3, 0.5, 0.7, math.nan))}
    high, low, lost = points_of(values, metrics, "x")
    assert (high.values, high.seeds) == ({"tau": "0.1"}, [0.5, 0.7])
    assert high.estimate.half == pytest.approx(12.706 * 0.1, rel=1e-4), "t(1) · s/√2 of 0.5 and 0.7"
    assert (low.values, lost.values) == ({"tau": "0.2"}, {"tau": "0.3"})


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
    metrics = {n: {SAMPLED: mean, COSINE: 0.3 * n} for n, mean in enumerate(means)}
    lines = summarise_points(tmp_path, values, metrics, primary=(VALIDATION, SAMPLED))
    assert lines == [f"Written: {tmp_path / name}" for name in ("summary.csv", *pictures)]
    rows = list(csv.DictReader((tmp_path / "summary.csv").open()))
    best_first = sorted(means, key=lambda mean: -mean if math.isfinite(mean) else math.inf)
    assert [(row["metric"], row["mean"]) for row in rows] == [(SAMPLED, str(mean)) for mean in best_first]
    shown = capsys.readouterr().out
    assert [shown.index(f"{mean:.3f}") for mean in best_first] == sorted(shown.index(f"{mean:.3f}") for mean in means)
    assert all((tmp_path / name).stat().st_size > 10_000 for name in pictures)


def test_the_metric_is_the_first_that_most_jobs_have(tmp_path: Path) -> None:
    values, primary = {0: {"a": "1"}, 1: {"a": "2"}}, (SAMPLED, VALIDATION)
    for ours, chosen in (({SAMPLED: 0.3, VALIDATION: 0.1}, SAMPLED), ({VALIDATION: 0.1}, VALIDATION)):
        summarise_points(tmp_path, values, {0: {SAMPLED: 0.1, VALIDATION: 0.2}, 1: ours}, primary=primary)
        assert {row["metric"] for row in csv.DictReader((tmp_path / "summary.csv").open())} == {chosen}
    (line,) = summarise_points(tmp_path, values, {0: {"train/loss": 0.1}}, primary=primary)
    assert line == f"no job left any of {SAMPLED}, {VALIDATION}: no table"


def drawn(points: list[Point], key: str, metric: str = SAMPLED) -> Figure:
    figure = draw(points, key=key, metric=metric)
    figure.draw_without_rendering()
    return figure


def test_a_picture_is_of_numbers_of_which_there_are_three() -> None:
    values = [{**one.values, "reward": "clipo"} for one in POINTS]
    assert numeric_keys(values) == [TAU]
    for third in ("null", "nan"):
        assert numeric_keys([{"a": "1"}, {"a": "2"}, {"a": "3"}, {"a": third}]) == []


def test_where_a_seed_diverged_there_is_no_mean_of_the_others_but_a_cross() -> None:
    """Else the temperature at which a run diverges could look like the best one."""
    diverged = [
        Point(values={TAU: tau, GROUP: "8"}, seeds=seeds)
        for tau, seeds in (("0.1", [0.3, math.inf, 0.49]), ("0.5", [math.nan]))
    ]
    figure = drawn([*POINTS[:3], *diverged], TAU)
    axes = figure.axes[0]
    x, y = axes.lines[0].get_data()
    assert list(x) == [0.02, 0.05, 0.1, 0.2, 0.5]
    assert [math.isnan(mean) for mean in y] == [False, False, True, False, True]
    (crosses,) = (line for line in axes.lines if line.get_marker() == "x")
    assert list(crosses.get_xdata()) == [0.1, 0.5]
    low, high = axes.get_ylim()
    assert 0.2 < low < 0.3 < 0.49 < high < 0.6
    assert figure.get_supxlabel().replace("\n", " ") == CAPTION + CROSSES
    assert drawn(POINTS[:3], TAU).get_supxlabel().replace("\n", " ") == CAPTION


def test_the_line_is_the_mean_and_the_band_its_interval() -> None:
    assert list(lines_of(POINTS, TAU)) == [f"{GROUP}=8", f"{GROUP}=16"], "in the order of numbers"
    axes = drawn(POINTS[:3], TAU).axes[0]
    x, y = axes.lines[0].get_data()
    assert list(x) == [0.02, 0.05, 0.2]
    assert list(y) == pytest.approx([0.40, 0.43, 0.31])
    band = axes.collections[0].get_paths()[0].vertices
    assert max(band[:, 1]) == pytest.approx(over_seeds(TAUS["0.05"]).high)
    assert min(band[:, 0]) == 0.05, "a single seed has no band"


@pytest.mark.parametrize(
    ("values", "scale", "metric"),
    [
        (("0.015", "0.05", "0.2"), "log", SAMPLED),
        (("8", "12", "16"), "linear", COSINE),
        (("0", "1", "100"), "linear", SAMPLED),
    ],
)
def test_values_over_a_wide_range_have_a_logarithmic_axis_and_shares_are_in_percent(
    values: tuple[str, ...], scale: str, metric: str
) -> None:
    axes = drawn([Point(values={"key": value}, seeds=[0.1, 0.2]) for value in values], "key", metric).axes[0]
    assert (axes.get_xscale(), axes.get_xlabel()) == (scale, "key")
    assert [label.get_text() for label in axes.get_xticklabels()] == list(values), "ticks stand where it was run"
    assert {label.get_text().endswith("%") for label in axes.get_yticklabels()} == {metric == SAMPLED}

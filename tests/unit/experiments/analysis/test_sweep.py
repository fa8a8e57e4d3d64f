"""The points of a sweep, and their pictures."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from experiments.analysis.figures import Point, draw_heat_map, draw_points, lines_of
from experiments.analysis.statistics import over_seeds
from experiments.analysis.sweep import numeric_keys, points_of, summarise_points

SAMPLED, VALIDATION = "test/verifier/accuracy_sampled", "val/verifier/accuracy_sampled"
COSINE = "train/clipo/positive_cosine"
TEXTS = ("summary.csv", "summary.md", "metrics.csv")
TAU, GROUP = "reward.temperature", "rollout.group_size"
TAUS = {"0.2": [0.30, 0.32, 0.31], "0.05": [0.41, 0.43, 0.45], "0.02": [0.40]}
POINTS = [Point(values={TAU: tau, GROUP: group}, seeds=TAUS[tau]) for group in ("8", "16") for tau in TAUS]


def test_points_of_groups_seeds_and_sorts_best_first_non_finite_last() -> None:
    values = {2 * t + s: {"tau": tau, "seed": str(s)} for t, tau in enumerate(("0.2", "0.1", "0.3")) for s in range(2)}
    metrics = {number: {"x": value} for number, value in enumerate((0.1, 0.3, 0.5, 0.7, math.nan))}
    high, low, lost = points_of(values, metrics, "x")
    assert (high.values, high.seeds) == ({"tau": "0.1"}, [0.5, 0.7])
    assert high.estimate.half == pytest.approx(12.706 * 0.1, rel=1e-4), "t(1) · s/√2 of 0.5 and 0.7"
    assert (low.values, lost.values) == ({"tau": "0.2"}, {"tau": "0.3"})


@pytest.mark.parametrize(
    ("means", "pictures"),
    [
        ((0.25, 0.5, 0.375), ["tau.png", "tau.metrics.png"]),
        ((0.3, math.nan, 0.4), ["tau.png", "tau.metrics.png"]),
        ((math.inf,) * 3, ["tau.metrics.png"]),
    ],
)
def test_summarise_points_writes_table_and_pictures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], means: tuple[float, ...], pictures: list[str]
) -> None:
    values = {n: {"tau": tau} for n, tau in enumerate(("0.2", "0.05", "0.02"))}
    metrics = {n: {SAMPLED: mean, COSINE: 0.3 * n} for n, mean in enumerate(means)}
    lines = summarise_points(tmp_path, values, metrics, primary=(VALIDATION, SAMPLED))
    assert lines == [f"Written: {tmp_path / name}" for name in (*TEXTS, *pictures)]
    rows = list(csv.DictReader((tmp_path / "summary.csv").open()))
    best_first = sorted(means, key=lambda mean: -mean if math.isfinite(mean) else math.inf)
    assert [(row["metric"], row["mean"]) for row in rows] == [(SAMPLED, str(mean)) for mean in best_first]
    shown = capsys.readouterr().out
    assert [shown.index(f"{mean:.3f}") for mean in best_first] == sorted(shown.index(f"{mean:.3f}") for mean in means)
    assert all((tmp_path / name).stat().st_size > 10_000 for name in pictures)


def test_summarise_points_uses_metric_that_most_jobs_have(tmp_path: Path) -> None:
    values, primary = {0: {"a": "1"}, 1: {"a": "2"}}, (SAMPLED, VALIDATION)
    for ours, chosen in (({SAMPLED: 0.3, VALIDATION: 0.1}, SAMPLED), ({VALIDATION: 0.1}, VALIDATION)):
        summarise_points(tmp_path, values, {0: {SAMPLED: 0.1, VALIDATION: 0.2}, 1: ours}, primary=primary)
        assert {row["metric"] for row in csv.DictReader((tmp_path / "summary.csv").open())} == {chosen}
    (line,) = summarise_points(tmp_path, values, {0: {"train/loss": 0.1}}, primary=primary)
    assert line == f"no job left any of {SAMPLED}, {VALIDATION}: no table"


def draw_and_render(points: list[Point], key: str, metric: str = SAMPLED) -> Figure:
    figure = draw_points({metric: points}, key=key)
    figure.draw_without_rendering()
    return figure


def test_numeric_keys_need_three_finite_numbers() -> None:
    values = [{**one.values, "reward": "clipo"} for one in POINTS]
    assert numeric_keys(values) == [TAU]
    for third in ("null", "nan"):
        assert numeric_keys([{"a": "1"}, {"a": "2"}, {"a": "3"}, {"a": third}]) == []


def test_diverged_seed_is_drawn_as_cross_without_mean() -> None:
    """Otherwise the temperature at which a run diverges could look like the best one."""
    diverged = [
        Point(values={TAU: tau, GROUP: "8"}, seeds=seeds)
        for tau, seeds in (("0.1", [0.3, math.inf, 0.49]), ("0.5", [math.nan]))
    ]
    axes = draw_and_render([*POINTS[:3], *diverged], TAU).axes[0]
    x, y = axes.lines[0].get_data()
    assert list(x) == [0.02, 0.05, 0.1, 0.2, 0.5]
    assert [math.isnan(mean) for mean in y] == [False, False, True, False, True]
    (crosses,) = (line for line in axes.lines if line.get_marker() == "x")
    assert list(crosses.get_xdata()) == [0.1, 0.5]
    low, high = axes.get_ylim()
    assert 0.2 < low < 0.3 < 0.49 < high < 0.6


def test_draw_points_shows_mean_as_line_and_interval_as_band() -> None:
    assert list(lines_of(POINTS, TAU)) == [f"{GROUP}=8", f"{GROUP}=16"], "in the order of numbers"
    axes = draw_and_render(POINTS[:3], TAU).axes[0]
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
def test_wide_range_has_logarithmic_axis_and_shares_are_in_percent(
    values: tuple[str, ...], scale: str, metric: str
) -> None:
    axes = draw_and_render([Point(values={"key": value}, seeds=[0.1, 0.2]) for value in values], "key", metric).axes[0]
    assert (axes.get_xscale(), axes.get_xlabel()) == (scale, "key")
    assert [label.get_text() for label in axes.get_xticklabels()] == list(values), "ticks stand where it was run"
    assert {label.get_text().endswith("%") for label in axes.get_yticklabels()} == {metric == SAMPLED}


def test_csv_has_every_charted_metric_and_table_has_token_cost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Metrics that are equal in all jobs, and metrics that are not charted, are left out."""
    values = {n: {TAU: tau, "seed": str(n)} for n, tau in enumerate(("0.2", "0.2", "0.05", "0.02"))}
    metrics = {
        n: {SAMPLED: 0.1 * n, COSINE: 0.2 * n, "train/spent/tokens": 1000.0 * n, "train/loss": n, "train/clipo/a": 1.0}
        for n in values
    }
    summarise_points(tmp_path, values, metrics, primary=(SAMPLED,))
    rows = list(csv.DictReader((tmp_path / "metrics.csv").open()))
    assert list(dict.fromkeys(row["metric"] for row in rows)) == [SAMPLED, COSINE, "train/spent/tokens"]
    (one,) = (row for row in rows if (row["metric"], row[TAU]) == (COSINE, "0.2"))
    assert (one["seeds"], float(one["mean"])) == ("2", pytest.approx(0.1))
    assert "| 0.02 | 1 | 0.300 | 3,000 |" in (tmp_path / "summary.md").read_text()
    assert "3,000" in capsys.readouterr().out


def test_draw_points_draws_a_panel_for_each_metric() -> None:
    other = [Point(values=one.values, seeds=[2 * value for value in one.seeds]) for one in POINTS]
    figure = draw_points({SAMPLED: POINTS, COSINE: other, "train/clipo/loss": POINTS, "d": POINTS}, key=TAU)
    figure.draw_without_rendering()
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title() for axes in shown] == [SAMPLED, COSINE, "train/clipo/loss", "d"]
    first, second = (axes.lines[0].get_ydata() for axes in shown[:2])
    assert list(second) == pytest.approx([2 * value for value in first])


def cells_of(figure: Figure) -> dict[tuple[str, str], str]:
    """(row, column) → the text of a heat-map's cell."""
    axes = figure.axes[0]
    columns, rows = (
        [label.get_text() for label in labels] for labels in (axes.get_xticklabels(), axes.get_yticklabels())
    )
    found = {}
    for text in axes.texts:
        x, y = text.get_position()
        found[rows[int(y)], columns[int(x)]] = text.get_text()
    return found


def test_heat_map_has_key_with_most_values_across_in_numerical_order() -> None:
    """τ by group size with one cell that was not run, and a row of the verifier alone, which has no temperature."""
    points = [
        Point(values={"reward": "clipo", TAU: tau, GROUP: group}, seeds=[float(group) / 100, float(group) / 50])
        for tau in ("0.05", "0.02")
        for group in ("16", "8", "32")
        if (tau, group) != ("0.02", "32")
    ]
    points += [Point(values={"reward": "verifier", TAU: "—", GROUP: group}, seeds=[0.5]) for group in ("8", "16", "32")]
    figure = draw_heat_map(points, metric=SAMPLED)
    assert figure is not None
    figure.draw_without_rendering()
    axes = figure.axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == (GROUP, f"reward · {TAU}")
    assert [label.get_text() for label in axes.get_xticklabels()] == ["8", "16", "32"]
    rows = ["clipo · 0.02", "clipo · 0.05", "verifier · —"]
    assert [label.get_text() for label in axes.get_yticklabels()] == rows
    image = axes.images[0].get_array()
    assert image[1].tolist() == pytest.approx([0.12, 0.24, 0.48])
    assert math.isnan(image.filled(math.nan)[0][2]), "it was not run"
    cells = cells_of(figure)
    assert cells[rows[2], "8"] == "50.0\n(1)", "percent; a single seed has no interval"
    assert cells[rows[1], "8"] == f"12.0 ± {100 * over_seeds([0.08, 0.16]).half:.1f}\n(2)"
    assert (rows[0], "32") not in cells


def test_heat_map_writes_non_finite_mean_without_colour() -> None:
    points = [Point(values={TAU: tau, GROUP: group}, seeds=[0.3]) for tau in ("1", "2") for group in ("8", "16")]
    figure = draw_heat_map([*points[:3], Point(values=points[3].values, seeds=[math.inf])], metric=COSINE)
    assert figure is not None
    assert cells_of(figure)["16", "2"] == "inf\n(1)"
    assert math.isnan(figure.axes[0].images[0].get_array().filled(math.nan)[1][1])


def test_draw_heat_map_returns_none_if_it_would_be_empty_or_illegible() -> None:
    assert draw_heat_map(POINTS[:3], metric=SAMPLED) is None, "one group size"
    lost = [Point(values=one.values, seeds=[math.nan]) for one in POINTS]
    assert draw_heat_map(lost, metric=SAMPLED) is None
    many = [Point(values={"a": str(n), "b": str(n), "c": str(n % 2)}, seeds=[0.5]) for n in range(41)]
    assert draw_heat_map(many, metric=SAMPLED) is None, "more rows than can be read"

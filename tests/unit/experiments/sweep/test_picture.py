from __future__ import annotations

import math

import pytest
from matplotlib.figure import Figure

from experiments.analysis.statistics import over_seeds
from experiments.sweep.picture import CAPTION, CROSSES, Point, draw, lines_of, numeric_keys

TAU, GROUP = "reward.temperature", "rollout.group_size"
TAUS = {"0.2": [0.30, 0.32, 0.31], "0.05": [0.41, 0.43, 0.45], "0.02": [0.40]}
POINTS: list[Point] = [({TAU: tau, GROUP: group}, TAUS[tau]) for group in ("8", "16") for tau in TAUS]


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
    values = [values | {"reward": "clipo"} for values, _ in POINTS]
    assert numeric_keys(values) == [TAU]
    assert numeric_keys([{"a": "1"}, {"a": "2"}, {"a": "3"}, {"a": "null"}]) == []
    assert numeric_keys([{"a": "1"}, {"a": "2"}, {"a": "nan"}]) == []


def test_where_a_seed_diverged_there_is_no_mean_of_the_others_but_a_cross() -> None:
    """Else the temperature at which a run diverges could look like the best one."""
    diverged = [({TAU: "0.1", GROUP: "8"}, [0.3, math.inf, 0.49]), ({TAU: "0.5", GROUP: "8"}, [math.nan])]
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
    axes = drawn([({"key": value}, [0.1, 0.2]) for value in values], "key").axes[0]
    assert axes.get_xscale() == scale
    assert axes.get_xlabel() == "key"
    assert [label.get_text() for label in axes.get_xticklabels()] == list(values), "ticks stand where it was run"


def test_zero_is_drawn_too() -> None:
    axes = drawn([({"key": value}, [0.1]) for value in ("0", "1", "100")], "key").axes[0]
    assert axes.get_xscale() == "linear"

from __future__ import annotations

import math

import pytest
from matplotlib.figure import Figure

from experiments.comparison.seeds import over_seeds
from experiments.sweep.picture import Point, draw, lines_of, numeric_keys

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


def test_what_diverged_leaves_no_point() -> None:
    values, line = [0.3, math.inf, 0.32], lines_of([*POINTS[:3], ({TAU: "0.5", GROUP: "8"}, [math.nan])], TAU)
    assert line == lines_of(POINTS[:3], TAU)
    figure = drawn([({TAU: "0.2", GROUP: "8"}, values), *POINTS[1:3]], TAU)
    low, high = figure.axes[0].get_ylim()
    assert 0.2 < low < high < 0.5


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

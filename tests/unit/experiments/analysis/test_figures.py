"""Pictures of curves and gains show the values of the tables."""

from __future__ import annotations

import math
from io import BytesIO

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from experiments.analysis.comparison import CURVE
from experiments.analysis.figures import PUBLISHED, WHISKER, Curve, draw_curves, draw_gains, thin_out
from experiments.analysis.set_table import SetTable
from tests.unit.experiments.analysis.test_set_table import table_of, track_run, two_arms

NAN, INF = math.nan, math.inf


def curves(*found: Curve) -> Figure:
    figure = draw_curves(found, metric=CURVE, steps="rollout batches")
    figure.draw_without_rendering()
    return figure


def test_draw_curves_labels_axes_and_curves_and_draws_bands() -> None:
    two = Curve(label="a", seeds=[{0: 0.1, 10: 0.3, 20: 0.5}, {0: 0.2, 10: 0.4}])
    figure = curves(two, Curve(label=r"$\frac$", seeds=[{0: 0.1, 10: 0.2}]))
    (axes,) = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("rollout batches", CURVE)
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["a (2 seeds)", r"\$\frac\$ (1 seed)"], "a name is no formula"
    assert len(axes.collections) == 1, "one band: a single seed has none"
    assert (two.steps, [e.value for e in two.estimates()]) == ([0, 10], pytest.approx([0.15, 0.35]))


def test_value_between_gaps_is_drawn_as_a_dot() -> None:
    """Such a value has no line, neither for a seed nor for the mean."""
    alone, beside = {0: 0.1, 10: NAN, 20: 0.2, 30: INF, 40: 0.3, 50: 0.4}, {step: 0.2 for step in range(0, 60, 10)}
    mean, seed, other = curves(Curve(label="a", seeds=[alone, beside])).axes[0].lines
    assert [list(line.get_xdata()[line.get_markevery()]) for line in (mean, seed)] == [[0, 20], [0, 20]]
    assert (mean.get_marker(), seed.get_marker(), other.get_marker()) == (".", ".", "")
    assert list(mean.get_ydata()[:3]) == pytest.approx([0.15, NAN, 0.2], nan_ok=True)
    lost = curves(Curve(label="a", seeds=[{0: NAN, 1: INF, 2: -INF}, {0: 0.1, 1: 0.1, 2: NAN}]))
    low, high = lost.axes[0].get_ylim()
    assert 0 < high - low < 0.6


def test_thin_out_averages_equal_step_ranges_and_keeps_gaps() -> None:
    long = [(step, float(step)) for step in range(600)]
    lost = [(step, INF if step < 20 or step % 2 else 1.0) for step in range(300)]
    first, second = thin_out([long, lost], most=60)
    assert len(first) == 60
    assert (first[0], first[10]) == (4.5, 14.5), "of the steps 0 to 9 and 10 to 19"
    assert [second[step] for step in (0, 10, 20)] == [NAN, NAN, 1.0]


def gains(table: SetTable) -> Figure:
    figure = draw_gains(table)
    figure.savefig(BytesIO())
    return figure


def bars(axes: Axes) -> list[tuple[int, float]]:
    """(position from the top, length) of each bar."""
    drawn = [bar for bar in axes.patches if isinstance(bar, Rectangle)]
    return [(round(bar.get_y() + bar.get_height() / 2), bar.get_width()) for bar in drawn]


def lines(axes: Axes, colour: str) -> list[list[tuple[float, float]]]:
    """The points of each line of this colour."""
    drawn = [line for line in axes.lines if to_hex(line.get_color()) == colour.lower()]
    return [[(float(x), float(y)) for x, y in np.asarray(line.get_xydata())] for line in drawn]


def test_draw_gains_has_a_panel_per_set_and_a_bar_per_compared_arm() -> None:
    name = r"$\frac$ · " + "advantage=one_step_calibrated · " * 3
    runs = [*two_arms(), track_run(name, 0, gsm8k=0.75, p1=None, reward="clipo_l2")]
    figure = gains(table_of(runs))
    gsm8k, p1 = figure.axes
    first, second = (label.get_text() for label in gsm8k.get_yticklabels())
    assert first == "clipo"
    assert second.startswith(r"\$\frac\$"), "no formula, and folded"
    assert second.count("\n") >= 2
    assert bars(gsm8k) == [(0, pytest.approx(4.0)), (1, pytest.approx(-5.0))], "of the one seed that both have"
    assert bars(p1) == [(0, pytest.approx(10.0))], "the third was not tested there"
    assert gsm8k.get_ylim()[0] > gsm8k.get_ylim()[1], "the first on top"
    assert figure.get_suptitle() == "Δ test/verifier/accuracy to plain, points"
    assert draw_gains(table_of(two_arms(), baseline=None)) is None


def test_draw_gains_shows_intervals_and_published_gains() -> None:
    """The differences 4 and 14 have the interval 9 ± 12.706 · 5, cut at four times the bar."""
    runs = [track_run("plain", s, gsm8k=0.80, p1=0.6, reward="verifier") for s in (0, 1)]
    runs += [track_run("clipo", s, gsm8k=0.84 + 0.10 * s, p1=0.7, reward="clipo") for s in (0, 1)]
    gsm8k, p1 = gains(table_of(runs)).axes
    ((low, _), (high, _)), *_ = lines(gsm8k, WHISKER)
    assert (low, high) == (pytest.approx(9 - 63.53, abs=0.01), pytest.approx(9 + 63.53, abs=0.01))
    assert gsm8k.get_xlim() == pytest.approx((-36 - 3.24, 45 + 3.24)), "with a margin"
    assert (lines(gsm8k, PUBLISHED), lines(p1, PUBLISHED)) == ([[(0.23, 0.0)]], [[(1.48, 0.0)]])
    single = gains(table_of([run for run in two_arms(model="other/model") if run.tags["seed"] == "0"])).axes[0]
    assert (bars(single), lines(single, WHISKER), lines(single, PUBLISHED)) == ([(0, pytest.approx(4.0))], [], [[]])


def test_draw_gains_writes_non_finite_gain_in_place_of_its_bar() -> None:
    runs = [track_run("plain", 0, gsm8k=0.8, p1=None, reward="verifier")]
    runs += [track_run(str(value), 0, gsm8k=value, p1=None, reward="clipo") for value in (NAN, INF, 0.9)]
    (axes,) = gains(table_of(runs)).axes
    assert bars(axes) == [(2, pytest.approx(10.0))]
    assert [text.get_text() for text in axes.texts] == [" nan", " +inf"]

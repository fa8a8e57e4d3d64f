"""The bars of a comparison show what its table says."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from experiments.analysis.gains import ACROSS, PUBLISHED, WHISKER, draw_gains
from experiments.analysis.set_table import SetTable
from tests.unit.experiments.analysis.test_set_table import table_of, track_run, two_arms


def gains(table: SetTable) -> Figure:
    figure = draw_gains(table)
    assert figure is not None
    figure.savefig(BytesIO())
    return figure


def bars(axes: Axes) -> list[tuple[int, float]]:
    """Place from the top and length."""
    drawn = [bar for bar in axes.patches if isinstance(bar, Rectangle)]
    return [(round(bar.get_y() + bar.get_height() / 2), bar.get_width()) for bar in drawn]


def lines(axes: Axes, colour: str) -> list[list[tuple[float, float]]]:
    """The points of each line of this colour."""
    drawn = [line for line in axes.lines if to_hex(line.get_color()) == colour.lower()]
    return [[(float(x), float(y)) for x, y in np.asarray(line.get_xydata())] for line in drawn]


def test_a_panel_for_each_set_and_a_bar_for_each_arm_but_the_baseline() -> None:
    runs = [*two_arms(), track_run("third", 0, gsm8k=0.75, p1=None, reward="clipo_l2")]
    figure = gains(table_of(runs))
    gsm8k, p1 = figure.axes
    assert [label.get_text() for label in gsm8k.get_yticklabels()] == ["clipo", "third"]
    assert bars(gsm8k) == [(0, pytest.approx(4.0)), (1, pytest.approx(-5.0))], "of the one seed that both have"
    assert bars(p1) == [(0, pytest.approx(10.0))], "the third was not tested there"
    assert gsm8k.get_ylim()[0] > gsm8k.get_ylim()[1], "the first on top"
    assert figure.get_suptitle() == "Δ test/verifier/accuracy to plain, points"


def test_intervals_and_published_gains() -> None:
    """The interval of two differences 4 and 14 is 12.706 · 5 to both sides, cut at four times the bar."""
    runs = [track_run("plain", s, gsm8k=0.80, p1=0.6, reward="verifier") for s in (0, 1)]
    runs += [track_run("clipo", s, gsm8k=0.84 + 0.10 * s, p1=0.7, reward="clipo") for s in (0, 1)]
    gsm8k, p1 = gains(table_of(runs)).axes
    ((low, _), (high, _)), *_ = lines(gsm8k, WHISKER)
    assert (low, high) == (pytest.approx(9 - 63.53, abs=0.01), pytest.approx(9 + 63.53, abs=0.01))
    left, right = gsm8k.get_xlim()
    assert (left, right) == pytest.approx((-36 - 3.24, 45 + 3.24)), "with a margin"
    assert lines(gsm8k, PUBLISHED) == [[(0.23, 0.0)]]
    assert lines(p1, PUBLISHED) == [[(1.48, 0.0)]]


def test_one_seed_has_no_interval_and_another_model_no_published_gain() -> None:
    runs = [run for run in two_arms(model="other/model") if run.tags["seed"] == "0"]
    gsm8k, _ = gains(table_of(runs)).axes
    assert bars(gsm8k) == [(0, pytest.approx(4.0))]
    assert lines(gsm8k, WHISKER) == []
    assert lines(gsm8k, PUBLISHED) == [[]]


def test_without_a_baseline_or_another_arm_there_is_no_picture() -> None:
    assert draw_gains(table_of(two_arms(), baseline=None)) is None
    assert draw_gains(table_of([run for run in two_arms() if run.experiment == "plain"])) is None


def test_a_name_is_no_formula_and_a_long_one_is_folded() -> None:
    name = r"$\frac$ · " + "advantage=one_step_calibrated · " * 3
    runs = [track_run(n, 0, gsm8k=0.8, p1=0.6, reward=n) for n in ("plain", name)]
    (label,) = gains(table_of(runs)).axes[0].get_yticklabels()
    assert label.get_text().startswith(r"\$\frac\$")
    assert label.get_text().count("\n") >= 2


def test_many_sets_stand_in_several_rows() -> None:
    table = table_of(two_arms())
    first, *_ = table.columns
    columns = [replace(first, name=f"set{place}", heading=f"Set {place}") for place in range(ACROSS + 1)]
    rows = {column.name: table.rows[first.name] for column in columns}
    figure = gains(replace(table, columns=columns, rows=rows))
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title() for axes in shown] == [column.heading for column in columns]
    tops = [axes.get_position().y1 for axes in shown]
    assert len({round(top, 3) for top in tops[:ACROSS]}) == 1
    assert tops[ACROSS] < tops[0]

"""The dose–response picture: what is drawn where, and that its numbers can be read at half its size."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.text import Annotation

from contrastive_reasoning.evaluation import Estimate
from experiments.analysis.seeds import Difference
from experiments.study.dose_picture import draw_doses
from experiments.study.dose_response import DosedArm
from experiments.study.label_places import Box, around, places
from experiments.study.rows import Gain

FRAME = Box(0, 0, 300, 200)


def arm(name: str, dose: float, gain: float, half: float) -> DosedArm:
    seeds = 1 if math.isnan(half) else 3
    by_seed = {str(seed): gain + 0.01 * (seed - seeds // 2) for seed in range(seeds)}
    aurocs = {str(seed): dose + 0.005 * (seed - seeds // 2) for seed in range(seeds)}
    over_seeds = Difference(value=gain, half=half, n=seeds, method="paired")
    any_estimate = Estimate(gain, gain, gain)
    found = Gain(
        nested=any_estimate,
        over_seeds=over_seeds,
        probability=any_estimate,
        by_seed=by_seed,
        seeds=(list(by_seed), list(by_seed)),
    )
    return DosedArm(name=name, seeds=seeds, aurocs=aurocs, gain=found)


def twelve() -> list[DosedArm]:
    """Eight crowd around the arms that know nothing, four stand apart; one has a single seed."""
    crowd = [arm(f"placebo_{n}", 0.5 + 0.004 * n, 0.004 * (n % 3 - 1), 0.02) for n in range(8)]
    return [*crowd, *(arm(f"critic_{n}", 0.6 + 0.05 * n, 0.02 * n, math.nan if n == 2 else 0.03) for n in range(4))]


def lines(figure: Figure) -> dict[str, Any]:
    return {str(line.get_label()): line for line in figure.axes[0].lines}


def test_points_stand_at_dose_and_gain_in_points(runs: Any) -> None:
    figure = draw_doses(runs.study(), [arm("oracle", 0.6, -0.02, 0.01), arm("better", 0.8, 0.05, math.nan)])
    drawn = lines(figure)
    assert drawn["1  oracle"].get_xydata().tolist() == [pytest.approx([0.6, -2.0])]
    assert drawn["2  better"].get_xydata().tolist() == [pytest.approx([0.8, 5.0])]
    assert list(drawn["plain (baseline)"].get_ydata()) == [0, 0]
    assert list(drawn["0.5: knows nothing"].get_xdata()) == [0.5, 0.5]
    seeds, interval = figure.axes[0].collections
    assert isinstance(interval, LineCollection)
    assert np.asarray(seeds.get_offsets()).tolist() == [
        pytest.approx(at) for at in ([0.595, -3.0], [0.6, -2.0], [0.605, -1.0])
    ]
    assert interval.get_segments()[0].tolist() == [pytest.approx([0.6, -3.0]), pytest.approx([0.6, -1.0])]


def test_an_interval_of_two_seeds_does_not_flatten_the_points(runs: Any) -> None:
    figure = draw_doses(runs.study(), [arm("oracle", 0.6, 0.0, 5.0), arm("better", 0.8, 0.05, 0.01)])
    low, high = figure.axes[0].get_ylim()
    assert low < -1 < 6 < high, "all single seeds, from -1 to 6, are inside"
    assert high - low < 3 * 7


def test_twelve_numbers_do_not_cover_each_other_at_half_size(runs: Any) -> None:
    figure = draw_doses(runs.study(), twelve())
    figure.set_dpi(80)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    axes = figure.axes[0]
    numbers = [text for text in axes.texts if isinstance(text, Annotation)]
    assert [text.get_text() for text in numbers] == [str(n + 1) for n in range(12)]
    boxes = [Box(*super(Annotation, text).get_window_extent(renderer).extents) for text in numbers]
    assert not [pair for pair in combinations(boxes, 2) if pair[0].meets(pair[1])]
    frame = Box(*axes.get_window_extent(renderer).extents)
    assert all(box.within(frame) for box in boxes)
    assert figure.legends[0].get_window_extent(renderer).y0 > 0, "the legend ends on the paper"


def test_labels_cover_nothing_where_there_is_room() -> None:
    points = [(100.0 + 5 * (n % 4), 100.0 + 5 * (n // 4)) for n in range(12)]
    offsets = places(points, [(12.0, 9.0)] * 12, marker=4.0, bars=[], frame=FRAME)
    labels = [around(x + dx, y + dy, 12.0, 9.0) for (x, y), (dx, dy) in zip(points, offsets, strict=True)]
    markers = [around(x, y, 4.0, 4.0) for x, y in points]
    assert not [pair for pair in combinations(labels, 2) if pair[0].meets(pair[1])]
    assert not [(label, marker) for label in labels for marker in markers if label.meets(marker)]
    assert all(label.within(FRAME) for label in labels)


def test_a_point_in_the_corner_is_labelled_inside_and_beside_its_bar() -> None:
    bar = Box(290, 0, 300, 200)
    ((dx, dy),) = places([(295.0, 195.0)], [(6.0, 8.0)], marker=4.0, bars=[bar], frame=FRAME)
    label = around(295 + dx, 195 + dy, 6.0, 8.0)
    assert label.within(FRAME)
    assert not label.meets(bar)


def test_the_legend_of_many_arms_ends_above_the_caption(runs: Any) -> None:
    figure = draw_doses(runs.study(), [arm(f"arm_{n}", 0.5 + 0.01 * n, 0.01 * (n % 5), 0.02) for n in range(40)])
    FigureCanvasAgg(figure).draw()
    legend = figure.legends[0].get_window_extent()
    caption = next(text for text in figure.texts if text.get_text() == figure.get_supxlabel())
    assert legend.y0 > caption.get_window_extent().y1
    assert legend.y1 <= figure.bbox.y1

"""Pictures of a sweep: a metric over one swept number, several metrics side by side, and a heat map.

Each combination of the other values is one line, with a band over seeds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, NullLocator, PercentFormatter

from experiments.analysis.pictures import (
    fill_band,
    finite_or_gap,
    legend_columns,
    limit_to,
    look,
    plain_text,
    write_caption,
)
from experiments.analysis.points import Point, in_order, lines_of, number_in
from experiments.analysis.statistics import is_share, over_seeds

MARKERS = "osD^vPX"
CAPTION = (
    "Lines: mean over seeds. Small dots: single seeds. Bands: 95% t-interval of the mean, cut at the frame; none for a "
    "single seed."
)
CROSSES = " Crosses: a seed's value there is no finite number, and so there is no mean."
CELLS = "Cells: mean ± half of the 95% t-interval over seeds (number of seeds). Empty: not run."
PANELS_IN_A_ROW = 3
MOST_ROWS = 40
"""The most rows of a heat map that are legible."""
COLOURS = "cividis"
"""From dark to light, distinguishable by colour-blind readers and in grey print."""


def draw(points: Sequence[Point], *, key: str, metric: str) -> Figure:
    """Draws a metric over one key; at least one value of a seed must be finite."""
    figure = Figure(figsize=(7.2, 4.6), layout="constrained")
    axes, labels = figure.subplots(), [*lines_of(points, key)]
    draw_on(axes, points, key=key, metric=metric)
    axes.set_xlabel(key)
    axes.set_ylabel(metric)
    if len(labels) > 1:
        figure.legend(frameon=False, loc="outside upper left", ncols=legend_columns(labels))
    write_caption(figure, _caption(points), width=110)
    return figure


def draw_metrics(metrics: Mapping[str, Sequence[Point]], *, key: str) -> Figure:
    """Draws a panel for each metric over one key; each needs at least one finite value of a seed."""
    across, down = min(PANELS_IN_A_ROW, len(metrics)), -(-len(metrics) // PANELS_IN_A_ROW)
    figure = Figure(figsize=(4.0 * max(across, 2), 0.9 + 2.7 * down), layout="constrained")
    panels = figure.subplots(down, across, squeeze=False).flatten()
    for axes, (metric, points) in zip(panels, metrics.items(), strict=False):
        draw_on(axes, points, key=key, metric=metric)
        axes.set_title(metric, fontsize=10)
        axes.set_xlabel(key, fontsize=9)
        axes.tick_params(labelsize=8)
    for axes in panels[len(metrics) :]:
        axes.set_visible(False)
    handles, labels = max((axes.get_legend_handles_labels() for axes in panels), key=lambda found: len(found[1]))
    if len(labels) > 1:
        figure.legend(handles, labels, frameon=False, loc="outside upper left", ncols=legend_columns(labels))
    write_caption(figure, _caption([point for points in metrics.values() for point in points]), width=60 * across)
    return figure


def draw_on(axes: Axes, points: Sequence[Point], *, key: str, metric: str) -> None:
    """Draws the lines of a metric on these axes, without title, labels and legend."""
    lines = lines_of(points, key)
    for index, (label, line) in enumerate(lines.items()):
        _draw_line(axes, line, plain_text(label), index)
    ats = sorted({at for line in lines.values() for at in line})
    if ats[0] > 0 and ats[-1] / ats[0] >= 4:
        axes.set_xscale("log")
    axes.set_xticks(ats, [f"{at:g}" for at in ats])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    limit_to(axes, [value for point in points for value in point.seeds if math.isfinite(value)], margin=0.25)
    if is_share(metric):
        axes.yaxis.set_major_formatter(PercentFormatter(xmax=1))


def _caption(points: Sequence[Point]) -> str:
    return CAPTION if all(math.isfinite(value) for point in points for value in point.seeds) else CAPTION + CROSSES


def _draw_line(axes: Axes, line: Mapping[float, Sequence[float]], label: str, index: int) -> None:
    colour, dashes = look(index)
    ats, estimates = list(line), [over_seeds(seeds) for seeds in line.values()]
    means = finite_or_gap(each.value for each in estimates)
    marker = MARKERS[index % len(MARKERS)]
    axes.plot(ats, means, color=colour, linestyle=dashes, marker=marker, linewidth=2, label=label, zorder=3)
    fill_band(axes, ats, estimates, color=colour)
    for at, seeds in line.items():
        axes.plot([at] * len(seeds), finite_or_gap(seeds), ".", color=colour, markersize=4, alpha=0.6)
    if crosses := [at for at, mean in zip(ats, means, strict=True) if math.isnan(mean)]:
        heights = [0.03 + 0.04 * index] * len(crosses)  # in axes units; differ so that crosses do not overlap
        axes.plot(crosses, heights, "x", color=colour, markersize=6, transform=axes.get_xaxis_transform())


def draw_heat_map(points: Sequence[Point], *, metric: str) -> Figure | None:
    """Draws the mean at each point.

    The columns are the values of one key: of the numeric keys, or else of all, the one with the most values. The rows
    are the combinations of the others. A point that lacks a key, for example a temperature, has its own row. Returns
    None if fewer than two keys vary, no mean is finite, or there are more than ``MOST_ROWS`` rows.
    """
    keys = dict.fromkeys(key for point in points for key in point.values)
    values = {key: {point.values.get(key, "") for point in points} for key in keys}
    varied = [key for key in keys if len(values[key]) > 1]
    if len(varied) < 2 or not any(math.isfinite(point.estimate.value) for point in points):
        return None
    across = max(varied, key=lambda key: (all(number_in(value) is not None for value in values[key]), len(values[key])))
    others = [key for key in varied if key != across]
    cells = {(_row(point, others), point.values.get(across, "")): point for point in points}
    rows = sorted({row for row, _ in cells}, key=lambda row: [in_order(value) for value in row])
    columns = sorted(values[across], key=in_order)
    if len(rows) > MOST_ROWS:
        return None
    figure = Figure(figsize=(max(5.5, 2.6 + 1.35 * len(columns)), 1.7 + 0.62 * len(rows)), layout="constrained")
    axes = figure.subplots()
    means = {place: point.estimate.value for place, point in cells.items()}
    grid = [finite_or_gap(means.get((row, column), math.nan) for column in columns) for row in rows]
    image = axes.imshow(grid, cmap=COLOURS, aspect="auto")
    percent, finite = is_share(metric), [mean for mean in means.values() if math.isfinite(mean)]
    middle = (min(finite) + max(finite)) / 2
    for (row, column), point in cells.items():
        on_dark = math.isfinite(means[row, column]) and means[row, column] <= middle
        _write_cell(axes, point, at=(columns.index(column), rows.index(row)), percent=percent, on_dark=on_dark)
    figure.colorbar(image, ax=axes, format=PercentFormatter(xmax=1) if percent else None)
    axes.set_xticks(range(len(columns)), [plain_text(column) or "—" for column in columns])
    axes.set_yticks(range(len(rows)), [plain_text(" · ".join(value or "—" for value in row)) for row in rows])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xlabel(across)
    axes.set_ylabel(" · ".join(others))
    axes.set_title(metric, fontsize=10)
    write_caption(figure, CELLS, width=90)
    return figure


def _row(point: Point, keys: Sequence[str]) -> tuple[str, ...]:
    return tuple(point.values.get(key, "") for key in keys)


def _write_cell(axes: Axes, point: Point, *, at: tuple[int, int], percent: bool, on_dark: bool) -> None:
    found = point.estimate
    mean = found.text(".1f", factor=100) if percent else found.text(".3f")
    axes.text(*at, f"{mean}\n({found.n})", ha="center", va="center", fontsize=9, color="white" if on_dark else "black")

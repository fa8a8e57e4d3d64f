"""A metric over a number that was swept: a line for each choice of the other values, with a band over seeds."""

from __future__ import annotations

import math
import textwrap
from collections import defaultdict
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, NullLocator, PercentFormatter

from experiments.analysis.curves import COLOURS, DASHES, fill_band, finite_or_gap, is_share
from experiments.analysis.statistics import over_seeds

Point = tuple[Mapping[str, str], Sequence[float]]
"""The swept values, and the metric of each seed."""
MARKERS = "osD^vPX"
LOG_FROM = 4.0
"""The greatest value over the least from which an axis of positive values is logarithmic."""
LEAST_VALUES = 3
"""Of two values the table says as much."""
CAPTION = (
    "Lines: mean over seeds. Small dots: single seeds. Bands: 95% t-interval of the mean, cut at the frame; none for a "
    "single seed."
)
CROSSES = " Crosses: a seed's value there is no finite number, and so there is no mean."
CROSS_LOW, CROSS_STEP = 0.03, 0.04
"""Of the axis' height, of the first line's crosses and between those of two lines."""


def numeric_keys(points: Sequence[Mapping[str, str]]) -> list[str]:
    """The keys that are a number at every point, of at least ``LEAST_VALUES`` values."""
    keys = dict.fromkeys(key for point in points for key in point)
    columns = {key: [number(point.get(key)) for point in points] for key in keys}
    return [key for key, found in columns.items() if None not in found and len(set(found)) >= LEAST_VALUES]


def number(text: str | None) -> float | None:
    """The finite number that a value is written as; None for anything else."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def lines_of(points: Sequence[Point], key: str) -> dict[str, dict[float, Sequence[float]]]:
    """Label of the other values → value of ``key`` → the metric of each seed."""
    lines: dict[tuple[tuple[str, str], ...], dict[float, Sequence[float]]] = defaultdict(dict)
    for values, seeds in points:
        others = tuple((name, value) for name, value in values.items() if name != key)
        if (at := number(values.get(key))) is not None:
            lines[others][at] = seeds
    ordered = sorted(lines.items(), key=lambda item: [(number(value) or 0.0, value) for _, value in item[0]])
    return {
        ", ".join(f"{name}={value}" for name, value in others): dict(sorted(line.items())) for others, line in ordered
    }


def draw(points: Sequence[Point], *, key: str, metric: str) -> Figure:
    """The picture for one key; at least one seed of one point is a finite number."""
    figure = Figure(figsize=(7.2, 4.6), layout="constrained")
    axes = figure.subplots()
    lines = lines_of(points, key)
    for index, (label, line) in enumerate(lines.items()):
        _draw(axes, line, label, index)
    _frame(axes, lines, metric)
    axes.set_xlabel(key)
    axes.set_ylabel(metric)
    if len(lines) > 1:
        figure.legend(frameon=False, loc="outside upper left", ncols=2 if max(map(len, lines)) <= 36 else 1)
    finite = all(math.isfinite(seed) for _, seeds in points for seed in seeds)
    said = textwrap.fill(CAPTION if finite else CAPTION + CROSSES, 110)
    figure.supxlabel(said, fontsize=8, color="0.35", x=0.02, ha="left")
    return figure


def _draw(axes: Axes, line: Mapping[float, Sequence[float]], label: str, index: int) -> None:
    colour, dashes = COLOURS[index % len(COLOURS)], DASHES[index // len(COLOURS) % len(DASHES)]
    marker = MARKERS[index % len(MARKERS)]
    estimates = {at: over_seeds(seeds) for at, seeds in line.items()}
    means = finite_or_gap(each.value for each in estimates.values())
    axes.plot(list(estimates), means, marker=marker, linewidth=2, label=label, zorder=3, color=colour, linestyle=dashes)
    fill_band(axes, list(estimates), list(estimates.values()), color=colour)
    for at, seeds in line.items():
        axes.plot([at] * len(seeds), finite_or_gap(seeds), ".", color=colour, markersize=4, alpha=0.6)
    if crosses := [at for at, mean in zip(estimates, means, strict=True) if math.isnan(mean)]:
        heights = [CROSS_LOW + CROSS_STEP * index] * len(crosses)
        axes.plot(crosses, heights, "x", color=colour, markersize=6, transform=axes.get_xaxis_transform())


def _frame(axes: Axes, lines: Mapping[str, Mapping[float, Sequence[float]]], metric: str) -> None:
    """Ticks at the values that were run; upwards by the seeds, not by the bands, which two seeds make huge."""
    ats = sorted({at for line in lines.values() for at in line})
    seeds = [value for line in lines.values() for values in line.values() for value in values]
    values = [value for value in seeds if math.isfinite(value)]
    if ats[0] > 0 and ats[-1] / ats[0] >= LOG_FROM:
        axes.set_xscale("log")
    axes.set_xticks(ats, [f"{at:g}" for at in ats])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    spread = max(values) - min(values)
    margin = 0.25 * spread or 0.05
    axes.set_ylim(min(values) - margin, max(values) + margin)
    if is_share(metric):
        axes.yaxis.set_major_formatter(PercentFormatter(xmax=1))
    axes.grid(axis="y", color="0.9")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)

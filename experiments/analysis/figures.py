"""Pictures of comparisons and sweeps, with one palette: curves over training, gains, lines over a number, a heat map.

A mean over seeds is a thick line with a band for its 95% interval. Where a value is not finite, a line has a gap.
"""

from __future__ import annotations

import math
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, NullLocator, PercentFormatter

from experiments.analysis.set_table import SetTable
from experiments.analysis.statistics import SeedEstimate, is_share, over_seeds
from experiments.table import with_sign

COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's palette without yellow: distinct for colour-blind readers and, with the dashes, in grey print."""
WHISKER, BAR, PUBLISHED = COLOURS[:3]
DASHES, MARKERS = ("-", "--", "-.", ":"), "osD^vPX"
HEAT = "cividis"
"""From dark to light, distinguishable by colour-blind readers and in grey print."""
LONGEST_OF_TWO = 36
"""Most characters of a label for which the legend has two columns."""
MOST_ROWS = 40
"""The most rows of a heat map that are legible."""
BANDS = "Bands: 95% t-interval of the mean, cut at the frame; none for a single seed."
CAPTION = (
    f"Thick lines: mean over seeds. Thin lines: single seeds. {BANDS} A gap: the value is not finite; a dot: a single "
    "value between gaps."
)
ABOUT_POINTS = f"Lines: mean over seeds. Small dots: single seeds. {BANDS} Crosses: no mean (a seed is not finite)."
ABOUT_GAINS = (
    "Bars: mean over seeds. Lines: 95% t-intervals, paired over the seeds of both or Welch's, cut at the frame; "
    "none for one seed."
)
ABOUT_CELLS = "Cells: mean ± half of the 95% t-interval over seeds (number of seeds). Empty: not run."


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One arm's histories."""

    label: str
    seeds: Sequence[Mapping[int, float]]
    """Per seed: step → value."""

    @property
    def steps(self) -> list[int]:
        """The steps that every seed has, so that the mean does not change where a seed ends."""
        return sorted(set.intersection(*(set(seed) for seed in self.seeds)))

    @property
    def values(self) -> list[float]:
        """The finite values of all seeds."""
        return [value for seed in self.seeds for value in seed.values() if math.isfinite(value)]

    def estimates(self) -> list[SeedEstimate]:
        """The mean over seeds at each of ``steps``."""
        return [over_seeds([seed[step] for seed in self.seeds]) for step in self.steps]


@dataclass(frozen=True, kw_only=True)
class Point:
    """Runs of a sweep or a comparison that differ only in the seed."""

    values: Mapping[str, str]
    """Swept key → value, without the seed."""
    seeds: Sequence[float]
    """The metric of each seed."""

    @property
    def estimate(self) -> SeedEstimate:
        return over_seeds(self.seeds)


def thin_out(histories: Sequence[Sequence[tuple[int, float]]], *, most: int) -> list[dict[int, float]]:
    """Reduces longer histories to about ``most`` points: means of the finite values in equal ranges of steps.

    A range without finite values is NaN.
    """
    logged = [history for history in histories if history]
    longest = max(map(len, logged), default=0)
    width = 1 if longest <= most else -(-max(history[-1][0] + 1 for history in logged) // most)
    thinned = []
    for history in logged:
        ranges: dict[int, list[float]] = {}
        for step, value in history:
            finite = ranges.setdefault(step // width * width, [])
            finite += [value] if math.isfinite(value) else []
        # math.nan is always the same object: lists that contain it can compare equal
        thinned.append({step: fmean(finite) if finite else math.nan for step, finite in ranges.items()})
    return thinned


def draw_curves(curves: Sequence[Curve], *, metric: str, steps: str) -> Figure:
    """Draws all curves in one picture; the first, usually the baseline, is black. ``steps`` is the x label."""
    columns = _legend_columns(curve.label for curve in curves)
    beyond = max(0, -(-len(curves) // columns) - 2)  # two legend lines fit into the default height
    figure = Figure(figsize=(7.2, 4.6 + 0.21 * beyond), layout="constrained")
    axes = figure.subplots()
    draw_curves_on(axes, curves, metric=metric, places=range(len(curves)))
    axes.set(xlabel=steps, ylabel=metric)
    figure.legend(frameon=False, loc="outside upper left", ncols=columns)
    _write_caption(figure, CAPTION, width=125)
    return figure


def draw_curves_on(axes: Axes, curves: Sequence[Curve], *, metric: str, places: Sequence[int]) -> None:
    """Draws all curves on these axes, each in the :func:`look` of its place, without title, labels and legend."""
    for curve, place in zip(curves, places, strict=True):
        (colour, dashes), n = look(place), len(curve.seeds)
        label = f"{plain_text(curve.label)} ({n} seed{'s' if n > 1 else ''})"
        thick: dict[str, Any] = {"linewidth": 2.2, "markersize": 7, "linestyle": dashes, "label": label}
        _draw_mean(axes, curve.steps, curve.estimates(), color=colour, **thick)
        for seed in curve.seeds if n > 1 else ():
            _draw_line(
                axes, *zip(*sorted(seed.items()), strict=True), color=colour, linewidth=0.7, markersize=4, alpha=0.45
            )
    values = [value for curve in curves for value in curve.values]
    _limit_to(axes, values, margin=0.12)
    axes.margins(x=0.02)
    if is_share(metric):
        wide = max(values, default=0.0) - min(values, default=0.0) > 0.05
        axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0 if wide else 1))


def _draw_mean(axes: Axes, at: Sequence[float], estimates: Sequence[SeedEstimate], *, color: str, **line: Any) -> None:
    """Draws the line of the means, and the band of their intervals if there are any."""
    _draw_line(axes, at, [estimate.value for estimate in estimates], color=color, zorder=3, **line)
    low, high = _finite_or_gap(e.low for e in estimates), _finite_or_gap(e.high for e in estimates)
    if not all(map(math.isnan, low)):
        axes.fill_between(at, low, high, color=color, alpha=0.13, linewidth=0)


def _draw_line(axes: Axes, at: Sequence[float], values: Sequence[float], *, marker: str = "", **line: Any) -> None:
    """Draws a line with gaps; a value between two gaps has a dot if the line has no markers."""
    drawn = _finite_or_gap(values)
    gaps = [True, *map(math.isnan, drawn), True]
    alone = [place for place in range(len(drawn)) if gaps[place : place + 3] == [True, False, True]]
    dots: dict[str, Any] = {"marker": ".", "markevery": alone} if alone and not marker else {"marker": marker}
    axes.plot(at, drawn, **dots, **line)


def draw_gains(table: SetTable) -> Figure | None:
    """Draws a panel per set with a bar for each arm that has a Δ, diamonds for published ones; None for no such arm."""
    names = [column.name for column in table.columns]
    labels = [arm.label for arm in table.arms if any(table.gain(name, arm.label) for name in names)]
    if not labels:
        return None
    folded = [textwrap.wrap(plain_text(label), 34) for label in labels]
    width, height = 2.6 + 2.7 * min(max(len(names), 2), 4), 1.2 + sum(0.21 + 0.13 * len(lines) for lines in folded)
    figure = Figure(figsize=(width, -(-len(names) // 4) * height), layout="constrained")
    for axes, column in zip(_panels(figure, len(names), across=4, sharey=True), table.columns, strict=True):
        _draw_bars(axes, table, column.name, labels)
        axes.set_title(column.heading, fontsize=10)
        axes.set_yticks(range(len(labels)), ["\n".join(lines) for lines in folded], fontsize=9)
    unit = ", points" if table.is_share else ""
    figure.suptitle(plain_text(f"Δ {table.metric} to {table.compared_to}{unit}"), fontsize=10, x=0.02, ha="left")
    diamonds = " Diamonds: as published." if any(table.published_deltas(label) for label in labels) else ""
    _write_caption(figure, ABOUT_GAINS + diamonds, width=int(12 * width))
    return figure


def _draw_bars(axes: Axes, table: SetTable, column: str, labels: Sequence[str]) -> None:
    factor = 100.0 if table.is_share else 1.0
    gains = {place: gain for place, label in enumerate(labels) if (gain := table.gain(column, label)) is not None}
    bars = {place: factor * gain.value for place, gain in gains.items()}
    finite = {place: length for place, length in bars.items() if math.isfinite(length)}
    axes.barh([*finite], [*finite.values()], height=0.62, color=BAR, alpha=0.75)
    for place in bars.keys() - finite.keys():
        axes.text(0, place, f" {with_sign(bars[place], '')}", va="center", fontsize=8, color=WHISKER)
    ends: list[float] = []
    for place, gain in gains.items():
        if not math.isnan(gain.half):
            ends += [factor * gain.low, factor * gain.high]
            axes.plot(ends[-2:], [place, place], marker="|", color=WHISKER, linewidth=1.4, markersize=7)
    deltas = {place: table.published_deltas(label) for place, label in enumerate(labels)}
    printed = {place: found[column] for place, found in deltas.items() if column in found}
    axes.plot([*printed.values()], [*printed], "D", color=PUBLISHED, markersize=6)
    axes.axvline(0, color="0.1", linewidth=1.0)
    # the interval of two seeds may flatten every bar: each side extends by at most four times the range of the values
    shown = [0.0, *finite.values(), *printed.values()]
    further = 4.0 * (max(shown) - min(shown) or 1.0)
    low, high = max(min([*shown, *ends]), min(shown) - further), min(max([*shown, *ends]), max(shown) + further)
    margin = 0.04 * (high - low) or 0.5
    axes.set(xlim=(low - margin, high + margin), ylim=(len(labels) - 0.5, -0.5))
    _plain_frame(axes, axis="x")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def draw_points(metrics: Mapping[str, Sequence[Point]], *, key: str) -> Figure:
    """Draws a panel for each metric over one swept key; each needs at least one finite value of a seed."""
    width, rows = max(7.2, 4.0 * min(3, len(metrics))), -(-len(metrics) // 3)
    figure = Figure(figsize=(width, 1.0 + 3.0 * rows), layout="constrained")
    panels = _panels(figure, len(metrics), across=3)
    for axes, (metric, points) in zip(panels, metrics.items(), strict=True):
        _draw_points_on(axes, points, key=key, metric=metric)
        axes.set_title(metric, fontsize=10)
        axes.set_xlabel(key, fontsize=9)
        axes.tick_params(labelsize=8)
    handles, labels = max((axes.get_legend_handles_labels() for axes in panels), key=lambda found: len(found[1]))
    if len(labels) > 1:
        figure.legend(handles, labels, frameon=False, loc="outside upper left", ncols=_legend_columns(labels))
    _write_caption(figure, ABOUT_POINTS, width=int(15 * width))
    return figure


def _draw_points_on(axes: Axes, points: Sequence[Point], *, key: str, metric: str) -> None:
    """Draws a line for each combination of the other keys' values, without title, labels and legend."""
    lines = lines_of(points, key)
    for index, (label, line) in enumerate(lines.items()):
        (colour, dashes), estimates = look(index), [over_seeds(seeds) for seeds in line.values()]
        marked: dict[str, Any] = {"linewidth": 2, "linestyle": dashes, "marker": MARKERS[index % len(MARKERS)]}
        _draw_mean(axes, [*line], estimates, color=colour, label=plain_text(label), **marked)
        for at, seeds in line.items():
            axes.plot([at] * len(seeds), _finite_or_gap(seeds), ".", color=colour, markersize=4, alpha=0.6)
        if crosses := [at for at, mean in zip(line, estimates, strict=True) if not math.isfinite(mean.value)]:
            heights = [0.03 + 0.04 * index] * len(crosses)  # in axes units; differ so that crosses do not overlap
            axes.plot(crosses, heights, "x", color=colour, markersize=6, transform=axes.get_xaxis_transform())
    ats = sorted({at for line in lines.values() for at in line})
    # before the ticks: a change of scale replaces locators and formatters
    if ats[0] > 0 and ats[-1] / ats[0] >= 4:
        axes.set_xscale("log")
    axes.set_xticks(ats, [f"{at:g}" for at in ats])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    _limit_to(axes, finite_values(points), margin=0.25)
    if is_share(metric):
        axes.yaxis.set_major_formatter(PercentFormatter(xmax=1))


def draw_heat_map(points: Sequence[Point], *, metric: str) -> Figure | None:
    """Draws the mean at each point.

    The columns are the values of one key: of the numeric keys, or else of all, the one with the most values. The rows
    are the combinations of the others. A point that lacks a key, for example a temperature, has its own row. Returns
    None if fewer than two keys vary, no mean is finite, or there are more than ``MOST_ROWS`` rows.
    """
    keys = dict.fromkeys(key for point in points for key in point.values)
    values = {key: {point.values.get(key, "") for point in points} for key in keys}
    varied = [key for key in keys if len(values[key]) > 1]
    finite = [mean for point in points if math.isfinite(mean := point.estimate.value)]
    if len(varied) < 2 or not finite:
        return None
    across = max(varied, key=lambda key: (all(number_in(value) is not None for value in values[key]), len(values[key])))
    others = [key for key in varied if key != across]
    cells = {
        (tuple(point.values.get(key, "") for key in others), point.values.get(across, "")): point.estimate
        for point in points
    }
    rows = sorted({row for row, _ in cells}, key=lambda row: [in_order(value) for value in row])
    columns = sorted(values[across], key=in_order)
    if len(rows) > MOST_ROWS:
        return None
    figure = Figure(figsize=(max(5.5, 2.6 + 1.35 * len(columns)), 1.7 + 0.62 * len(rows)), layout="constrained")
    axes, percent, middle = figure.subplots(), is_share(metric), (min(finite) + max(finite)) / 2
    found = [[cells.get((row, column)) for column in columns] for row in rows]
    grid = [_finite_or_gap(math.nan if cell is None else cell.value for cell in row) for row in found]
    image = axes.imshow(grid, cmap=HEAT, aspect="auto")
    for (row, column), cell in cells.items():
        text = f"{cell.text('.1f', factor=100) if percent else cell.text('.3f')}\n({cell.n})"
        colour = "white" if math.isfinite(cell.value) and cell.value <= middle else "black"
        at = (columns.index(column), rows.index(row))
        axes.text(*at, text, ha="center", va="center", fontsize=9, color=colour)
    figure.colorbar(image, ax=axes, format=PercentFormatter(xmax=1) if percent else None)
    axes.set_xticks(range(len(columns)), [plain_text(column) or "—" for column in columns])
    axes.set_yticks(range(len(rows)), [plain_text(" · ".join(value or "—" for value in row)) for row in rows])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set(xlabel=across, ylabel=" · ".join(others))
    axes.set_title(metric, fontsize=10)
    _write_caption(figure, ABOUT_CELLS, width=90)
    return figure


def finite_values(points: Sequence[Point]) -> list[float]:
    """The finite values of all seeds."""
    return [value for point in points for value in point.seeds if math.isfinite(value)]


def number_in(text: str | None) -> float | None:
    """The finite number in ``text``; None for anything else."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def in_order(text: str) -> tuple[bool, float, str]:
    """A sort key: numbers by value, then other texts."""
    number = number_in(text)
    return number is None, number or 0.0, text


def lines_of(points: Sequence[Point], key: str) -> dict[str, dict[float, Sequence[float]]]:
    """Label of the other values → value of ``key`` → the metric of each seed; in numerical order."""
    lines: dict[tuple[tuple[str, str], ...], dict[float, Sequence[float]]] = defaultdict(dict)
    for point in points:
        others = tuple((name, value) for name, value in point.values.items() if name != key)
        if (at := number_in(point.values.get(key))) is not None:
            lines[others][at] = point.seeds
    ordered = sorted(lines.items(), key=lambda item: [(number_in(value) or 0.0, value) for _, value in item[0]])
    return {
        ", ".join(f"{name}={value}" for name, value in others): dict(sorted(line.items())) for others, line in ordered
    }


def look(index: int) -> tuple[str, str]:
    """Colour and line style of the curve with this index; the first is black and solid."""
    return COLOURS[index % len(COLOURS)], DASHES[index // len(COLOURS) % len(DASHES)]


def plain_text(text: str) -> str:
    """Escapes ``$``, so that matplotlib does not parse the text as a formula."""
    return text.replace("$", r"\$")


def _panels(figure: Figure, count: int, *, across: int, sharey: bool = False) -> list[Axes]:
    """``count`` axes in rows of ``across``; the rest of the last row is hidden."""
    down, across = -(-count // across), min(count, across)
    panels = [*figure.subplots(down, across, squeeze=False, sharey=sharey).flatten()]
    for axes in panels[count:]:
        axes.set_visible(False)
    return panels[:count]


def _limit_to(axes: Axes, values: Sequence[float], *, margin: float) -> None:
    """Sets y limits by the seeds' values, and a plain frame. Limits by bands would flatten the lines of two seeds."""
    low, high = min(values, default=0.0), max(values, default=0.0)
    around = margin * (high - low) or 0.05
    axes.set_ylim(low - around, high + around)
    _plain_frame(axes, axis="y")


def _plain_frame(axes: Axes, *, axis: Literal["x", "y"]) -> None:
    """Draws a grid for one axis behind the data, and removes the top and right spines."""
    axes.grid(axis=axis, color="0.9")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _legend_columns(labels: Iterable[str]) -> int:
    return 2 if max(map(len, labels)) <= LONGEST_OF_TWO else 1


def _write_caption(figure: Figure, text: str, *, width: int) -> None:
    figure.supxlabel(textwrap.fill(text, width), fontsize=8, color="0.35", x=0.02, ha="left")


def _finite_or_gap(values: Iterable[float]) -> list[float]:
    """The values with NaN for infinities, for which matplotlib also leaves a gap, but warns."""
    return [value if math.isfinite(value) else math.nan for value in values]

"""Pictures of a comparison: curves over training with bands over seeds, and bars of each arm's gain.

Also the parts that all pictures share: colours, limits, bands, captions.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from experiments.analysis.set_table import SetTable
from experiments.analysis.statistics import SeedEstimate, is_share, over_seeds
from experiments.table import with_sign

COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's palette without yellow: distinct for colour-blind readers and, with the dashes, in grey print."""
DASHES = ("-", "--", "-.", ":")
LONGEST_OF_TWO = 36
"""Most characters of a label for which the legend has two columns."""
CAPTION = (
    "Thick lines: mean over seeds. Thin lines: single seeds. Bands: 95% t-interval of the mean at each step, "
    "cut at the frame; none for a single seed."
)
GAPS = " A gap: a seed's value there is no finite number; a dot: what stands alone between gaps."
PANELS_IN_A_ROW = 4
WHISKER, BAR, PUBLISHED = COLOURS[:3]
ABOUT_GAINS = (
    "Bars: mean over seeds. Lines: 95% t-intervals, paired over the seeds of both or Welch's, cut at the frame; "
    "none for one seed."
)


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


def draw_curves(curves: Sequence[Curve], *, metric: str, steps: str) -> Figure:
    """Draws all curves in one picture; the first, usually the baseline, is black. ``steps`` is the x label."""
    columns = legend_columns(curve.label for curve in curves)
    beyond = max(0, -(-len(curves) // columns) - 2)  # two legend lines fit into the default height
    figure = Figure(figsize=(7.2, 4.6 + 0.21 * beyond), layout="constrained")
    axes = figure.subplots()
    draw_on(axes, curves, metric=metric, places=range(len(curves)))
    axes.set_xlabel(steps)
    axes.set_ylabel(metric)
    figure.legend(frameon=False, loc="outside upper left", ncols=columns)
    finite = all(len(curve.values) == sum(map(len, curve.seeds)) for curve in curves)
    write_caption(figure, CAPTION if finite else CAPTION + GAPS, width=125)
    return figure


def draw_on(axes: Axes, curves: Sequence[Curve], *, metric: str, places: Sequence[int]) -> None:
    """Draws all curves on these axes, each in the :func:`look` of its place, without title, labels and legend."""
    for curve, place in zip(curves, places, strict=True):
        _draw_curve(axes, curve, *look(place))
    values = [value for curve in curves for value in curve.values]
    limit_to(axes, values, margin=0.12)
    axes.margins(x=0.02)
    if is_share(metric):
        wide = max(values, default=0.0) - min(values, default=0.0) > 0.05
        axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0 if wide else 1))


def _draw_curve(axes: Axes, curve: Curve, colour: str, dashes: str) -> None:
    steps, estimates, n = curve.steps, curve.estimates(), len(curve.seeds)
    label = f"{plain_text(curve.label)} ({n} seed{'s' if n > 1 else ''})"
    means = finite_or_gap(estimate.value for estimate in estimates)
    axes.plot(steps, means, color=colour, linestyle=dashes, linewidth=2.2, label=label, zorder=3)
    _dot_alone(axes, steps, means, color=colour, markersize=7, zorder=3)
    if n > 1:
        fill_band(axes, steps, estimates, color=colour)
        for seed in curve.seeds:
            at, values = sorted(seed), finite_or_gap(value for _, value in sorted(seed.items()))
            axes.plot(at, values, color=colour, linewidth=0.7, alpha=0.45)
            _dot_alone(axes, at, values, color=colour, markersize=4, alpha=0.45)


def _dot_alone(axes: Axes, steps: Sequence[int], values: Sequence[float], **look: Any) -> None:
    """Draws a dot for each value between two gaps, which has no line."""
    gaps = [True, *map(math.isnan, values), True]
    alone = [place for place in range(len(values)) if gaps[place : place + 3] == [True, False, True]]
    if alone:
        axes.plot([steps[place] for place in alone], [values[place] for place in alone], ".", **look)


def draw_gains(table: SetTable) -> Figure | None:
    """Draws a panel per set with a bar for each arm that has a Δ, diamonds for published ones; None for no such arm."""
    names = [column.name for column in table.columns]
    labels = [arm.label for arm in table.arms if any(table.gain(name, arm.label) for name in names)]
    if not labels:
        return None
    across, down = min(len(names), PANELS_IN_A_ROW), -(-len(names) // PANELS_IN_A_ROW)
    folded = [textwrap.wrap(plain_text(label), 34) for label in labels]
    width = 2.6 + 2.7 * max(across, 2)
    height = 1.2 + sum(0.34 + 0.13 * (len(lines) - 1) for lines in folded)
    figure = Figure(figsize=(width, down * height), layout="constrained")
    panels = figure.subplots(down, across, squeeze=False, sharey=True).flatten()
    for axes, column in zip(panels, table.columns, strict=False):
        _draw_bars(axes, table, column.name, labels)
        axes.set_title(column.heading, fontsize=10)
        axes.set_yticks(range(len(labels)), ["\n".join(lines) for lines in folded], fontsize=9)
    for axes in panels[len(names) :]:
        axes.set_visible(False)
    unit = ", points" if table.is_share else ""
    figure.suptitle(plain_text(f"Δ {table.metric} to {table.compared_to}{unit}"), fontsize=10, x=0.02, ha="left")
    diamonds = " Diamonds: as published." if any(table.published_deltas(label) for label in labels) else ""
    write_caption(figure, ABOUT_GAINS + diamonds, width=int(12 * width))
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
    axes.set_xlim(low - margin, high + margin)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    plain_frame(axes, axis="x")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def limit_to(axes: Axes, values: Sequence[float], *, margin: float) -> None:
    """Sets y limits by the seeds' values, and a plain frame. Limits by bands would flatten the lines of two seeds."""
    low, high = min(values, default=0.0), max(values, default=0.0)
    around = margin * (high - low) or 0.05
    axes.set_ylim(low - around, high + around)
    plain_frame(axes, axis="y")


def plain_frame(axes: Axes, *, axis: Literal["both", "x", "y"]) -> None:
    """Draws a grid for one axis or both behind the data, and removes the top and right spines."""
    axes.grid(axis=axis, color="0.9")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def look(index: int) -> tuple[str, str]:
    """Colour and line style of the curve with this index; the first is black and solid."""
    return COLOURS[index % len(COLOURS)], DASHES[index // len(COLOURS) % len(DASHES)]


def legend_columns(labels: Iterable[str]) -> int:
    """The number of columns of the legend."""
    return 2 if max(map(len, labels)) <= LONGEST_OF_TWO else 1


def plain_text(text: str) -> str:
    """Escapes ``$``, so that matplotlib does not parse the text as a formula."""
    return text.replace("$", r"\$")


def write_caption(figure: Figure, text: str, *, width: int) -> None:
    """Writes a caption below the picture, in lines of ``width`` characters."""
    figure.supxlabel(textwrap.fill(text, width), fontsize=8, color="0.35", x=0.02, ha="left")


def finite_or_gap(values: Iterable[float]) -> list[float]:
    """The values with NaN for infinities, for which matplotlib also leaves a gap, but warns."""
    return [value if math.isfinite(value) else math.nan for value in values]


def fill_band(axes: Axes, at: Sequence[float], estimates: Sequence[SeedEstimate], *, color: str) -> None:
    """Fills the intervals of the estimates in a faint colour; nothing where there is no interval."""
    low, high = (finite_or_gap(end) for end in ([e.low for e in estimates], [e.high for e in estimates]))
    axes.fill_between(at, low, high, color=color, alpha=0.13, linewidth=0)

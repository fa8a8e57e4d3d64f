"""A quantity over training steps: per arm the mean of its seeds, a band around it, and the seeds themselves."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from experiments.analysis.seeds import Estimate, over_seeds

COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's palette without its yellow: told apart by colour-blind eyes and, with the dashes, in grey print."""
DASHES = ("-", "--", "-.", ":")
SHARES = ("accuracy", "pass_at", "auroc", "auprc", "extraction_rate")
"""In the last part of the names of metrics that are shares."""
LONGEST_OF_TWO = 36
"""Characters of a label up to which two stand side by side above the picture."""
FEW_LINES, LINE = 2, 0.21
"""Lines of labels for which a picture of the usual height has room; inches that each further one adds to it."""
CAPTION = (
    "Thick lines: mean over seeds. Thin lines: single seeds. Bands: 95% t-interval of the mean at each step, "
    "cut at the frame; none for a single seed."
)
GAPS = " A gap: a seed's value there is no finite number; a dot: what stands alone between gaps."


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One arm's histories."""

    label: str
    seeds: Sequence[Mapping[int, float]]
    """Per seed: step → value."""

    @property
    def steps(self) -> list[int]:
        """The steps that every seed has, so that no mean changes because a seed drops out."""
        return sorted(set.intersection(*(set(seed) for seed in self.seeds)))

    def estimates(self) -> list[Estimate]:
        """The mean over seeds at each of ``steps``."""
        return [over_seeds([seed[step] for seed in self.seeds]) for step in self.steps]


def draw_curves(curves: Sequence[Curve], *, metric: str, steps: str) -> Figure:
    """All curves in one picture; the first, as a rule the baseline, is black. ``steps`` names the x axis."""
    columns = 2 if max(len(curve.label) for curve in curves) <= LONGEST_OF_TWO else 1
    beyond = max(0, -(-len(curves) // columns) - FEW_LINES)
    figure = Figure(figsize=(7.2, 4.6 + LINE * beyond), layout="constrained")
    axes = figure.subplots()
    draw_on(axes, curves, metric=metric, places=range(len(curves)))
    axes.set_xlabel(steps)
    axes.set_ylabel(metric)
    figure.legend(frameon=False, loc="outside upper left", ncols=columns)
    finite = all(math.isfinite(value) for curve in curves for seed in curve.seeds for value in seed.values())
    said = textwrap.fill(CAPTION if finite else CAPTION + GAPS, 125)
    figure.supxlabel(said, fontsize=8, color="0.35", x=0.02, ha="left")
    return figure


def draw_on(axes: Axes, curves: Sequence[Curve], *, metric: str, places: Sequence[int]) -> None:
    """All curves on these axes, each in the :func:`look` of its place; what stands around them is the caller's."""
    for curve, place in zip(curves, places, strict=True):
        _draw(axes, curve, *look(place))
    _set_limits(axes, curves)
    if is_share(metric):
        axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0 if _range(curves) > 0.05 else 1))
    axes.grid(axis="y", color="0.9")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def is_share(metric: str) -> bool:
    """Whether a metric is written in percent."""
    return any(share in metric.rpartition("/")[2] for share in SHARES)


def look(index: int) -> tuple[str, str]:
    """Colour and dashes of the curve at this place, those of the first black and unbroken."""
    return COLOURS[index % len(COLOURS)], DASHES[index // len(COLOURS) % len(DASHES)]


def _draw(axes: Axes, curve: Curve, colour: str, dashes: str) -> None:
    steps, estimates = curve.steps, curve.estimates()
    n = len(curve.seeds)
    name = curve.label.replace("$", r"\$")  # else a formula
    label = f"{name} ({n} seed{'s' if n > 1 else ''})"
    means = [or_gap(e.value) for e in estimates]
    axes.plot(steps, means, color=colour, linestyle=dashes, linewidth=2.2, label=label, zorder=3)
    _dot_alone(axes, steps, means, color=colour, markersize=7, zorder=3)
    if n > 1:
        fill_band(axes, steps, estimates, color=colour)
        for seed in curve.seeds:
            at, values = sorted(seed), [or_gap(value) for _, value in sorted(seed.items())]
            axes.plot(at, values, color=colour, linewidth=0.7, alpha=0.45)
            _dot_alone(axes, at, values, color=colour, markersize=4, alpha=0.45)


def _dot_alone(axes: Axes, steps: Sequence[int], values: Sequence[float], **look: Any) -> None:
    """Values between two gaps, of which no line is drawn."""
    gaps = [True, *map(math.isnan, values), True]
    alone = [place for place in range(len(values)) if gaps[place : place + 3] == [True, False, True]]
    if alone:
        axes.plot([steps[place] for place in alone], [values[place] for place in alone], ".", **look)


def fill_band(axes: Axes, at: Sequence[float], estimates: Sequence[Estimate], *, color: str) -> None:
    """Their intervals, faintly; nothing where there is none."""
    low, high = ([or_gap(end) for end in ends] for ends in zip(*((e.low, e.high) for e in estimates), strict=True))
    axes.fill_between(at, low, high, color=color, alpha=0.13, linewidth=0)


def or_gap(value: float) -> float:
    """Of an infinity matplotlib would leave a gap, too, but warn."""
    return value if math.isfinite(value) else math.nan


def _set_limits(axes: Axes, curves: Sequence[Curve]) -> None:
    """By the seeds, not by the bands: with two or three seeds Student's band would flatten every line."""
    values = _values(curves) or [0.0]
    margin = 0.12 * _range(curves) or 0.05
    axes.set_ylim(min(values) - margin, max(values) + margin)
    axes.margins(x=0.02)


def _range(curves: Sequence[Curve]) -> float:
    values = _values(curves) or [0.0]
    return max(values) - min(values)


def _values(curves: Sequence[Curve]) -> list[float]:
    return [value for curve in curves for seed in curve.seeds for value in seed.values() if math.isfinite(value)]

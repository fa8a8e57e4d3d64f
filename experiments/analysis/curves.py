"""A quantity over training steps: per arm the mean of its seeds, a band around it, and the seeds themselves."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from experiments.analysis.statistics import SeedEstimate, over_seeds

COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's palette without its yellow: told apart by colour-blind eyes and, with the dashes, in grey print."""
DASHES = ("-", "--", "-.", ":")
SHARES = ("accuracy", "pass_at", "auroc", "auprc", "extraction_rate")
"""In the last part of the names of metrics that are shares."""
LONGEST_OF_TWO = 36
"""Characters of a label up to which two stand side by side above the picture."""
FEW_LINES, LINE = 2, 0.21
"""Lines of labels that fit above a picture of the usual height; inches that each further one adds to it."""
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

    @property
    def values(self) -> list[float]:
        """The finite ones of all seeds."""
        return [value for seed in self.seeds for value in seed.values() if math.isfinite(value)]

    def estimates(self) -> list[SeedEstimate]:
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
    finite = all(len(curve.values) == sum(map(len, curve.seeds)) for curve in curves)
    write_caption(figure, CAPTION if finite else CAPTION + GAPS, width=125)
    return figure


def draw_on(axes: Axes, curves: Sequence[Curve], *, metric: str, places: Sequence[int]) -> None:
    """All curves on these axes, each in the :func:`look` of its place; title, labels and legend are the caller's."""
    for curve, place in zip(curves, places, strict=True):
        _draw(axes, curve, *look(place))
    values = [value for curve in curves for value in curve.values]
    limit_to(axes, values, margin=0.12)
    axes.margins(x=0.02)
    if is_share(metric):
        wide = max(values, default=0.0) - min(values, default=0.0) > 0.05
        axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0 if wide else 1))


def limit_to(axes: Axes, values: Sequence[float], *, margin: float) -> None:
    """Limits by the seeds' values, not by bands, with which two seeds would flatten every line; and a plain frame."""
    low, high = min(values, default=0.0), max(values, default=0.0)
    around = margin * (high - low) or 0.05
    axes.set_ylim(low - around, high + around)
    axes.grid(axis="y", color="0.9")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def is_share(metric: str) -> bool:
    """Whether a metric is written in percent."""
    return any(share in metric.rpartition("/")[2] for share in SHARES)


def look(index: int) -> tuple[str, str]:
    """Colour and dashes of the curve at this place, those of the first black and unbroken."""
    return COLOURS[index % len(COLOURS)], DASHES[index // len(COLOURS) % len(DASHES)]


def plain_text(text: str) -> str:
    """A text that matplotlib does not read as a formula."""
    return text.replace("$", r"\$")


def write_caption(figure: Figure, text: str, *, width: int) -> None:
    """Under the picture, in lines of ``width`` characters."""
    figure.supxlabel(textwrap.fill(text, width), fontsize=8, color="0.35", x=0.02, ha="left")


def finite_or_gap(values: Iterable[float]) -> list[float]:
    """With nan for infinities: matplotlib leaves a gap for them, too, but warns."""
    return [value if math.isfinite(value) else math.nan for value in values]


def fill_band(axes: Axes, at: Sequence[float], estimates: Sequence[SeedEstimate], *, color: str) -> None:
    """Their intervals, faintly; nothing where there is none."""
    low, high = (finite_or_gap(end) for end in ([e.low for e in estimates], [e.high for e in estimates]))
    axes.fill_between(at, low, high, color=color, alpha=0.13, linewidth=0)


def _draw(axes: Axes, curve: Curve, colour: str, dashes: str) -> None:
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
    """Values between two gaps, of which no line is drawn."""
    gaps = [True, *map(math.isnan, values), True]
    alone = [place for place in range(len(values)) if gaps[place : place + 3] == [True, False, True]]
    if alone:
        axes.plot([steps[place] for place in alone], [values[place] for place in alone], ".", **look)

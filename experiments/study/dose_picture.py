"""The dose–response picture: what each arm gained over how well its values told sibling steps apart.

Large points are arms, numbered from left to right as in the legend; small ones single seeds.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from itertools import product

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from experiments.analysis.curves import COLOURS
from experiments.study.dose_response import DOSE, DosedArm, correlation_sentence
from experiments.study.label_places import Box, places
from experiments.study.plan import Study

STYLES = [(colour, shape) for shape, colour in product("osD^v", COLOURS[1:])]
"""Black is the baseline's."""
MARKER, DIGIT, HEIGHT, LINE = 8.0, 6.0, 9.0, 1.4
"""A point's width, a digit's width and height, a line's width, in typographic points, with the space around them."""
LEADER = 14.0
"""How far off, in the same, a number still needs no line to its point."""
ENTRY, AROUND = 0.205, 1.75
"""Inches: what an arm takes in the legend, for which nothing makes room, and what the rest of the picture takes."""
CAPTION = (
    "Large: arms, with 95% intervals over seeds (none for a single seed), cut at the frame. Small: single seeds, minus "
    "the baseline's run of the same seed."
)


def draw_doses(study: Study, arms: Sequence[DosedArm]) -> Figure:
    """One picture of the arms that value steps, the least dose first, one at least."""
    figure = Figure(figsize=(8.8, max(5.6, ENTRY * len(arms) + AROUND)), layout="constrained")
    axes = figure.subplots()
    axes.axhline(0, color=COLOURS[0], linewidth=1.6, label=f"{study.primary.baseline} (baseline)")
    axes.axvline(0.5, color="0.35", linewidth=1.2, linestyle="--", label="0.5: knows nothing")
    for number, arm in enumerate(arms):
        _draw(axes, arm, f"{number + 1}  {arm.name}", *STYLES[number % len(STYLES)])
    _set_limits(axes, arms)
    axes.set_xlabel("AUROC among siblings of the values of steps, by the verifier's verdicts")
    axes.set_ylabel(f"Δ {study.primary.metric} to {study.primary.baseline}, points")
    axes.grid(color="0.92")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(frameon=False, loc="outside right upper", fontsize=9)
    caption = f"{correlation_sentence(arms)} {DOSE} {CAPTION}"
    figure.supxlabel("\n".join(textwrap.wrap(caption, 145)), fontsize=8, color="0.25", x=0.02, ha="left")
    _number(figure, axes, arms)
    return figure


def _draw(axes: Axes, arm: DosedArm, label: str, colour: str, shape: str) -> None:
    x, y, half = _point(arm)
    if len(arm.aurocs) > 1:
        xs, ys = _single_seeds(arm)
        axes.scatter(xs, ys, s=9, color=colour, marker=shape, alpha=0.5, linewidths=0)
    if not math.isnan(half):
        axes.vlines(x, y - half, y + half, color=colour, linewidth=1.3, alpha=0.75)
    axes.plot([x], [y], color=colour, marker=shape, markersize=6, linestyle="none", label=label, zorder=3)


def _point(arm: DosedArm) -> tuple[float, float, float]:
    """Dose, gain and half its interval, the last two in points."""
    return arm.dose, 100 * arm.gain.over_seeds.value, 100 * arm.gain.over_seeds.half


def _single_seeds(arm: DosedArm) -> tuple[list[float], list[float]]:
    """Doses and gains of the seeds that have both, in points."""
    paired = [seed for seed in arm.aurocs if seed in arm.gain.by_seed]
    return [arm.aurocs[seed] for seed in paired], [100 * arm.gain.by_seed[seed] for seed in paired]


def _set_limits(axes: Axes, arms: Sequence[DosedArm]) -> None:
    """All points, 0 and 0.5; of intervals at most half of that range more: with two seeds they would flatten it."""
    points = [_point(arm) for arm in arms]
    seeds = [_single_seeds(arm) for arm in arms]
    xs = [0.5, *(x for x, _, _ in points), *(x for doses, _ in seeds for x in doses)]
    ys = [0.0, *(y for _, y, _ in points), *(y for _, gains in seeds for y in gains)]
    ends = [*ys, *(y + end for _, y, half in points if not math.isnan(half) for end in (-half, half))]
    wide, high = (max(values) - min(values) or 0.1 for values in (xs, ys))
    axes.set_xlim(min(xs) - 0.06 * wide, max(xs) + 0.06 * wide)
    low, top = max(min(ends), min(ys) - high / 2), min(max(ends), max(ys) + high / 2)
    axes.set_ylim(low - 0.06 * high, top + 0.06 * high)


def _number(figure: Figure, axes: Axes, arms: Sequence[DosedArm]) -> None:
    """Each arm's number beside its point, once it is known where on paper the points lie."""
    figure.draw_without_rendering()

    def on_paper(x: float, y: float) -> tuple[float, float]:
        """In typographic points, in which offsets are given."""
        across, up = axes.transData.transform((x, y)) * 72 / figure.dpi
        return float(across), float(up)

    found = [_point(arm) for arm in arms]
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    ends = [((x, y - half), (x, y + half)) for x, y, half in found if not math.isnan(half)]
    ends += [((left, 0.0), (right, 0.0)), ((0.5, bottom), (0.5, top))]
    offsets = places(
        [on_paper(x, y) for x, y, _ in found],
        [(DIGIT * len(str(number + 1)), HEIGHT) for number in range(len(arms))],
        marker=MARKER,
        bars=[Box(*on_paper(*low), *on_paper(*high)).wider(LINE) for low, high in ends],
        frame=Box(*on_paper(left, bottom), *on_paper(right, top)),
    )
    for number, offset in enumerate(offsets):
        _write(axes, str(number + 1), found[number][:2], offset)


def _write(axes: Axes, text: str, point: tuple[float, float], offset: tuple[float, float]) -> None:
    """A number, and from further off a line that leads to its point."""
    leader = {"arrowstyle": "-", "color": "0.35", "linewidth": 0.7, "shrinkA": 0, "shrinkB": 3}
    written = axes.annotate(
        text,
        point,
        xytext=offset,
        textcoords="offset points",
        ha="center",
        va="center",
        fontsize=9,
        color="0.05",
        arrowprops=leader if math.hypot(*offset) > LEADER else None,
        path_effects=[withStroke(linewidth=2, foreground="white")],
        zorder=2.5,  # over lines and intervals, under points
    )
    written.set_in_layout(False)  # else the frame moves under the offsets

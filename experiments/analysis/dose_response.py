"""Dose and response: how well each arm's values ranked sibling steps in its own runs, and the arm's gain.

The dose is the metric train/steps/auroc_siblings (contrastive_reasoning/rewards/shaping.py), averaged over a run's
rollout batches and then over seeds. Its labels are the verifier's verdicts for every kind of value, so even an oracle
need not reach 1. The response is the gain over the baseline in the primary metric. Arms that value no steps have no
dose. An arm or seed has no point if its dose or gain is not finite.

In the picture, large points are arms, numbered from left to right as in the legend. Small points are single seeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from scipy.stats import spearmanr

from experiments.analysis.pictures import COLOURS, plain_frame, write_caption
from experiments.analysis.study_rows import ArmRow
from experiments.studies.plan import Study
from experiments.table import Table, with_sign

LEAST_ARMS = 4
"""The least number of arms for a rank correlation: by chance, three arms are in one order or its reverse a third of the
time."""
PICTURE = "study_dose_response.png"
DOSE = (
    "AUROC among siblings: of two steps equally deep into the same problem, one of a rollout that the verifier "
    "accepted and one of a rollout that it did not, how often the former had the higher value, ties counting half; "
    "the mean over a run's rollout batches, then over seeds. The verifier's verdicts decide for every arm: even an "
    "oracle's values need not reach 1. Random values have 0.5."
)
ABOUT_CORRELATION = (
    "It says whether arms whose values ranked siblings better also gained more: 1 for the same order, -1 for "
    "the reverse. Arms differ in more than their values, and each AUROC was measured on rollouts of the policy "
    "that the arm trained: this is an association, not a cause."
)
CAPTION = (
    "Large: arms, with 95% intervals over seeds (none for a single seed), cut at the frame. Small: single seeds, minus "
    "the baseline's run of the same seed."
)
STYLES = [(colour, shape) for shape, colour in product("osD^v", COLOURS[1:])]
"""Styles of the arms, without black, which is the baseline's colour."""


def dose_response(rows: Sequence[ArmRow]) -> list[ArmRow]:
    """The arms with a gain that value steps, in increasing order of dose, non-finite ones last; not the baseline."""
    valued = (row for row in rows if row.gain and row.auroc_siblings)
    return sorted(valued, key=lambda row: dose_of(row) if math.isfinite(dose_of(row)) else math.inf)


def with_points(rows: Sequence[ArmRow]) -> list[ArmRow]:
    """The rows with a finite dose and gain."""
    return [row for row in rows if all(map(math.isfinite, point_of(row)[:2]))]


def dose_of(row: ArmRow) -> float:
    """The dose of an arm: the mean over its seeds."""
    return fmean(row.auroc_siblings.values())


def point_of(row: ArmRow) -> tuple[float, float, float]:
    """Dose, gain and half the gain's interval; the last two in percentage points."""
    gain = row.gain.over_seeds if row.gain else None
    return dose_of(row), 100 * gain.value if gain else math.nan, 100 * gain.half if gain else math.nan


def single_seeds(row: ArmRow) -> list[tuple[float, float]]:
    """Dose, and gain in percentage points, of each seed that has both; empty if only one seed has a dose."""
    gains = row.gain.by_seed if row.gain and len(row.auroc_siblings) > 1 else {}
    points = [(dose, 100 * gains[seed]) for seed, dose in row.auroc_siblings.items() if seed in gains]
    return [point for point in points if all(map(math.isfinite, point))]


def rank_correlation(rows: Sequence[ArmRow]) -> float | None:
    """Spearman's correlation of dose and gain over arms; None for too few points, or if either is constant."""
    rows = with_points(rows)
    doses, gains = [dose_of(row) for row in rows], [row.gain.over_seeds.value for row in rows if row.gain]
    if len(rows) < LEAST_ARMS or len(set(doses)) == 1 or len(set(gains)) == 1:
        return None
    found: Any = spearmanr(doses, gains)
    return float(found.statistic)


def correlation_sentence(rows: Sequence[ArmRow]) -> str:
    """``Spearman's rank correlation over arms: +0.80 (n = 4).``"""
    n, found = len(with_points(rows)), rank_correlation(rows)
    if found is not None:
        return f"Spearman's rank correlation over arms: {with_sign(found, '.2f')} (n = {n})."
    why = f"fewer than {LEAST_ARMS}" if n < LEAST_ARMS else "all equal in one of the two"
    return f"No rank correlation: {n} arm{'' if n == 1 else 's'}, {why}."


def dose_section(study: Study, rows: Sequence[ArmRow]) -> str:
    """The section at the end of the Markdown report, for at least one arm."""
    found = correlation_sentence(rows) + ("" if rank_correlation(rows) is None else f" {ABOUT_CORRELATION}")
    cells = []
    for row in rows:
        doses = row.auroc_siblings.values()
        between = f" ({min(doses):.3f}–{max(doses):.3f})" if len(doses) > 1 else ""
        of_seeds = f", {len(doses)} of {len(row.seeds)} seeds" if len(doses) < len(row.seeds) else ""
        gain = row.gain.over_seeds.points() if row.gain else ""
        cells.append([row.name, f"{dose_of(row):.3f}{between}{of_seeds}", gain])
    head = ["arm", "AUROC among siblings (range over seeds)", f"Δ to {study.primary.baseline} over seeds"]
    table = Table(head=head, rows=cells, caption=f"{DOSE} Δ in points of {study.primary.metric}.")
    heading = "## What accuracy of values went with what gain"
    return f"{heading}\n\n![gain by AUROC]({PICTURE})\n\n{table.as_markdown()}\n{found}\n"


def draw_doses(study: Study, rows: Sequence[ArmRow]) -> Figure:
    """A picture of the arms that value steps, given in increasing order of dose."""
    rows = with_points(rows)
    figure = Figure(figsize=(8.8, max(5.6, 0.205 * len(rows) + 1.75)), layout="constrained")
    axes = figure.subplots()
    axes.axhline(0, color=COLOURS[0], linewidth=1.6, label=f"{study.primary.baseline} (baseline)")
    axes.axvline(0.5, color="0.35", linewidth=1.2, linestyle="--", label="0.5: random values")
    outline = [withStroke(linewidth=2, foreground="white")]
    for number, row in enumerate(rows, start=1):
        colour, shape = STYLES[(number - 1) % len(STYLES)]
        for x, y in single_seeds(row):
            axes.scatter(x, y, s=9, color=colour, marker=shape, alpha=0.5, linewidths=0)
        x, y, half = point_of(row)
        if not math.isnan(half):
            axes.vlines(x, y - half, y + half, color=colour, linewidth=1.3, alpha=0.75)
        axes.plot(x, y, color=colour, marker=shape, markersize=6, linestyle="none", label=f"{number}  {row.name}")
        # beside its point, alternately above and below, since neighbours have similar doses
        beside: dict[str, Any] = {"xytext": (9, 9 if number % 2 else -9), "textcoords": "offset points"}
        axes.annotate(str(number), (x, y), **beside, ha="center", va="center", fontsize=9, path_effects=outline)
    _set_limits(axes, rows)
    axes.set_xlabel("AUROC among siblings of the values of steps, by the verifier's verdicts")
    axes.set_ylabel(f"Δ {study.primary.metric} to {study.primary.baseline}, points")
    plain_frame(axes, axis="both")
    figure.legend(frameon=False, loc="outside right upper", fontsize=9)
    write_caption(figure, f"{correlation_sentence(rows)} {DOSE} {CAPTION}", width=145)
    return figure


def _set_limits(axes: Axes, rows: Sequence[ArmRow]) -> None:
    """Sets limits that contain all points, x = 0.5 and y = 0.

    Intervals extend the y-range by at most half on each side: those of two seeds would flatten the picture.
    """
    points = [point_of(row) for row in rows]
    seeds = [point for row in rows for point in single_seeds(row)]
    xs = [0.5, *(x for x, _, _ in points), *(x for x, _ in seeds)]
    ys = [0.0, *(y for _, y, _ in points), *(y for _, y in seeds)]
    ends = [*ys, *(y + end for _, y, half in points if not math.isnan(half) for end in (-half, half))]
    wide, high = (max(values) - min(values) or 0.1 for values in (xs, ys))
    axes.set_xlim(min(xs) - 0.06 * wide, max(xs) + 0.06 * wide)
    low, top = max(min(ends), min(ys) - high / 2), min(max(ends), max(ys) + high / 2)
    axes.set_ylim(low - 0.06 * high, top + 0.06 * high)

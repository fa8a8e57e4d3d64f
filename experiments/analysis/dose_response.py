"""How well each arm's values ranked sibling steps in its own runs, beside what the arm gained over the baseline.

The dose is the metric train/steps/auroc_siblings (contrastive_reasoning/rewards/shaping.py), the mean over a
run's rollout batches and then over seeds: by the verifier's verdicts, whatever the values were made of, so that an
oracle has no 1 there; the response is the gain in the primary metric. Arms that value no steps have no dose.

In the picture large points are arms, numbered from left to right as in the legend; small ones are single seeds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from scipy.stats import spearmanr

from experiments.analysis.pictures import COLOURS, write_caption
from experiments.analysis.study_rows import ArmRow, Gain
from experiments.studies.plan import Study
from experiments.table import Table

LEAST_ARMS = 4
"""For a correlation of ranks: three arms fall into one order or its reverse a third of the time."""
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
"""Black is the baseline's."""


@dataclass(frozen=True, kw_only=True)
class DosedArm:
    """An arm that values steps, beside the baseline."""

    name: str
    seeds: int
    """How many have finished."""
    aurocs: Mapping[str, float]
    """Among siblings, by seed; without the seeds whose verdicts never differed."""
    gain: Gain

    @property
    def dose(self) -> float:
        """The mean over seeds."""
        return fmean(self.aurocs.values())

    @property
    def dose_text(self) -> str:
        """``0.612 (0.590–0.640)``; of fewer seeds than the gain, how many."""
        values = self.aurocs.values()
        between = f" ({min(values):.3f}–{max(values):.3f})" if len(values) > 1 else ""
        of_seeds = f", {len(values)} of {self.seeds} seeds" if len(values) < self.seeds else ""
        return f"{self.dose:.3f}{between}{of_seeds}"

    @property
    def point(self) -> tuple[float, float, float]:
        """Dose, gain and half its interval, the last two in percentage points."""
        return self.dose, 100 * self.gain.over_seeds.value, 100 * self.gain.over_seeds.half

    @property
    def single_seeds(self) -> list[tuple[float, float]]:
        """Dose and gain, in percentage points, of each seed that has both; empty for a single one."""
        gains = self.gain.by_seed if len(self.aurocs) > 1 else {}
        return [(dose, 100 * gains[seed]) for seed, dose in self.aurocs.items() if seed in gains]


def dose_response(rows: Sequence[ArmRow]) -> list[DosedArm]:
    """The arms that value steps, the least dose first; the baseline is not among them."""
    arms = [
        DosedArm(name=row.name, seeds=len(row.seeds), aurocs=row.auroc_siblings, gain=row.gain)
        for row in rows
        if row.gain is not None and row.auroc_siblings
    ]
    return sorted(arms, key=lambda arm: arm.dose)


def rank_correlation(arms: Sequence[DosedArm]) -> float | None:
    """Spearman's, of dose and gain over arms; None for too few arms, or where all are equal in one of the two."""
    doses, gains = [arm.dose for arm in arms], [arm.gain.over_seeds.value for arm in arms]
    if len(arms) < LEAST_ARMS or len(set(doses)) == 1 or len(set(gains)) == 1:
        return None
    found: Any = spearmanr(doses, gains)
    return float(found.statistic)


def correlation_sentence(arms: Sequence[DosedArm]) -> str:
    """``Spearman's rank correlation over arms: +0.80 (n = 4).``"""
    n, found = len(arms), rank_correlation(arms)
    if found is not None:
        return f"Spearman's rank correlation over arms: {found:+.2f} (n = {n})."
    why = f"fewer than {LEAST_ARMS}" if n < LEAST_ARMS else "all equal in one of the two"
    return f"No rank correlation: {n} arm{'' if n == 1 else 's'}, {why}."


def dose_section(study: Study, arms: Sequence[DosedArm]) -> str:
    """For the end of the Markdown report, of one arm at least."""
    found = correlation_sentence(arms) + ("" if rank_correlation(arms) is None else f" {ABOUT_CORRELATION}")
    table = Table(
        head=["arm", "AUROC among siblings (range over seeds)", f"Δ to {study.primary.baseline} over seeds"],
        rows=[[arm.name, arm.dose_text, arm.gain.over_seeds.points()] for arm in arms],
        caption=f"{DOSE} Δ in points of {study.primary.metric}.",
    )
    heading = "## What accuracy of values went with what gain"
    return f"{heading}\n\n![gain by AUROC]({PICTURE})\n\n{table.as_markdown()}\n{found}\n"


def draw_doses(study: Study, arms: Sequence[DosedArm]) -> Figure:
    """One picture of the arms that value steps, the least dose first, one at least."""
    figure = Figure(figsize=(8.8, max(5.6, 0.205 * len(arms) + 1.75)), layout="constrained")
    axes = figure.subplots()
    axes.axhline(0, color=COLOURS[0], linewidth=1.6, label=f"{study.primary.baseline} (baseline)")
    axes.axvline(0.5, color="0.35", linewidth=1.2, linestyle="--", label="0.5: random values")
    outline = [withStroke(linewidth=2, foreground="white")]
    for number, arm in enumerate(arms, start=1):
        colour, shape = STYLES[(number - 1) % len(STYLES)]
        for x, y in arm.single_seeds:
            axes.scatter(x, y, s=9, color=colour, marker=shape, alpha=0.5, linewidths=0)
        x, y, half = arm.point
        if not math.isnan(half):
            axes.vlines(x, y - half, y + half, color=colour, linewidth=1.3, alpha=0.75)
        axes.plot(x, y, color=colour, marker=shape, markersize=6, linestyle="none", label=f"{number}  {arm.name}")
        # beside its point, by turns above and below: neighbours are near each other in dose
        beside: dict[str, Any] = {"xytext": (9, 9 if number % 2 else -9), "textcoords": "offset points"}
        axes.annotate(str(number), (x, y), **beside, ha="center", va="center", fontsize=9, path_effects=outline)
    _set_limits(axes, arms)
    axes.set_xlabel("AUROC among siblings of the values of steps, by the verifier's verdicts")
    axes.set_ylabel(f"Δ {study.primary.metric} to {study.primary.baseline}, points")
    axes.grid(color="0.92")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(frameon=False, loc="outside right upper", fontsize=9)
    write_caption(figure, f"{correlation_sentence(arms)} {DOSE} {CAPTION}", width=145)
    return figure


def _set_limits(axes: Axes, arms: Sequence[DosedArm]) -> None:
    """All points, 0 and 0.5; of intervals at most half of that range more: with two seeds they would flatten it."""
    points = [arm.point for arm in arms]
    seeds = [point for arm in arms for point in arm.single_seeds]
    xs = [0.5, *(x for x, _, _ in points), *(x for x, _ in seeds)]
    ys = [0.0, *(y for _, y, _ in points), *(y for _, y in seeds)]
    ends = [*ys, *(y + end for _, y, half in points if not math.isnan(half) for end in (-half, half))]
    wide, high = (max(values) - min(values) or 0.1 for values in (xs, ys))
    axes.set_xlim(min(xs) - 0.06 * wide, max(xs) + 0.06 * wide)
    low, top = max(min(ends), min(ys) - high / 2), min(max(ends), max(ys) + high / 2)
    axes.set_ylim(low - 0.06 * high, top + 0.06 * high)

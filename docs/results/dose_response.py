"""Draws the gain of each arm of a study against how well its values ranked sibling steps in its own runs.

    python docs/results/dose_response.py [CSV... [PICTURE]]

Without arguments it draws the picture of the pages from countdown_credit_repeated.csv.

The dose is the metric train/steps/auroc_siblings: of two steps equally deep into the same problem, one of a rollout
that the verifier accepted and one of a rollout that it did not, how often the former had the higher value. It is
averaged over the rollout batches of a run, then over seeds. The verifier's verdicts decide for every arm, so even exact
values need not reach 1. The response is the gain in greedy success over the arm ``grpo`` of the same CSV: paired by
seed where at least two seeds are in common, else of the means. With several CSVs an arm's name ends with its CSV's. It
is an association: arms differ in more than their values.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import spearmanr, t as student

FOLDER = Path(__file__).resolve().parent
CSV, PICTURE = FOLDER / "countdown_credit_repeated.csv", FOLDER.parent / "countdown_dose_response.png"
BASELINE, METRIC = "grpo", "greedy"
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
SHAPES = "osD^v"


class Arm(NamedTuple):
    """An arm whose steps have values; gains are in percentage points."""

    name: str
    dose: float
    gain: float
    half: float | None
    """Half of the 95% t-interval of the gain over seeds; None for fewer than two seeds in common."""
    seeds: list[tuple[float, float]]
    """Dose and gain of each seed in common with the baseline, if there are at least two."""


def arms(rows: list[dict[str, str]]) -> list[Arm]:
    """Returns the arms with values, in increasing order of dose."""
    base = {row["seed"]: 100 * float(row[METRIC]) for row in rows if row["arm"] == BASELINE}
    return sorted(_arms(rows, base), key=lambda arm: arm.dose)


def _arms(rows: list[dict[str, str]], base: dict[str, float]) -> Iterator[Arm]:
    for name in dict.fromkeys(row["arm"] for row in rows if row["auroc_siblings"]):
        own = [row for row in rows if row["arm"] == name]
        doses, ends = ([float(row[key]) for row in own] for key in ("auroc_siblings", METRIC))
        common = [row for row in own if row["seed"] in base]
        gains = [100 * float(row[METRIC]) - base[row["seed"]] for row in common]
        if len(gains) < 2:
            yield Arm(name, fmean(doses), 100 * fmean(ends) - fmean(base.values()), None, [])
            continue
        half = float(student.ppf(0.975, len(gains) - 1)) * stdev(gains) / len(gains) ** 0.5
        seeds = [(float(row["auroc_siblings"]), gain) for row, gain in zip(common, gains, strict=True)]
        yield Arm(name, fmean(doses), fmean(gains), half, seeds)


def draw(found: list[Arm]) -> Figure:
    """Large points are arms, numbered from left to right; small points are single seeds; lines are 95% intervals."""
    figure = Figure(figsize=(8.8, max(5.0, 0.205 * len(found) + 1.2)), layout="constrained")
    axes: Axes = figure.subplots()
    axes.axhline(0, color="black", linewidth=1.6, label=f"{BASELINE} (baseline)")
    axes.axvline(0.5, color="0.35", linewidth=1.2, linestyle="--", label="0.5: random values")
    for number, arm in enumerate(found, start=1):
        style = {"color": COLOURS[(number - 1) // len(SHAPES) % len(COLOURS)], "marker": SHAPES[number % len(SHAPES)]}
        for x, y in arm.seeds:
            axes.scatter(x, y, s=9, alpha=0.5, linewidths=0, **style)
        if arm.half is not None:
            axes.vlines(arm.dose, arm.gain - arm.half, arm.gain + arm.half, color=style["color"], linewidth=1.3)
        axes.plot(arm.dose, arm.gain, markersize=6, linestyle="none", label=f"{number}  {arm.name}", **style)
        above = {"xytext": (9, 9 if number % 2 else -9), "textcoords": "offset points"}
        axes.annotate(str(number), (arm.dose, arm.gain), ha="center", va="center", fontsize=9, **above)  # pyright: ignore
    ends = [arm.gain for arm in found] + [gain for arm in found for _, gain in arm.seeds] + [0.0]
    axes.set_ylim(min(ends) - 6, max(ends) + 6)  # intervals of few seeds are cut at the frame
    axes.set_xlabel("AUROC among siblings of the values of steps, by the verifier's verdicts")
    axes.set_ylabel(f"Δ {METRIC} success to {BASELINE}, points")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    rank: Any = spearmanr([arm.dose for arm in found], [arm.gain for arm in found])
    correlation = f"Spearman's rank correlation over {len(found)} arms: {rank.statistic:+.2f}"
    axes.set_title(correlation, fontsize=10, loc="left")
    figure.legend(frameon=False, loc="outside right upper", fontsize=9)
    return figure


def main(sources: Sequence[Path] = (CSV,), picture: Path = PICTURE) -> None:
    found: list[Arm] = []
    for source in sources:
        with source.open(newline="", encoding="utf-8") as file:
            own = arms([*csv.DictReader(file)])
        found += own if len(sources) == 1 else [arm._replace(name=f"{arm.name}, {source.stem}") for arm in own]
    draw(sorted(found, key=lambda arm: arm.dose)).savefig(picture, dpi=130)


if __name__ == "__main__":
    paths = [Path(argument) for argument in sys.argv[1:]]
    main(
        [path for path in paths if path.suffix == ".csv"] or [CSV],
        next((p for p in paths if p.suffix != ".csv"), PICTURE),
    )

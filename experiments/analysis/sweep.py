"""What came out of a sweep, over the values that it swept: a table, the best first, and a picture for each number.

Read from the run folders, so that it needs no MLflow; ``summary.csv`` and pictures go into the sweep's folder. In a
picture there is a line for each choice of the other values, with a band over seeds.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, NullLocator, PercentFormatter

from experiments.analysis.curves import COLOURS, DASHES, fill_band, finite_or_gap, is_share, limit_to, write_caption
from experiments.analysis.set_table import three_decimals
from experiments.analysis.statistics import SeedEstimate, over_seeds
from experiments.system.files import write_text
from experiments.table import Table, as_csv

CSV, SEED = "summary.csv", "seed"
WIDE = 160
POSITIVE_COSINE = "train/clipo/positive_cosine"
"""Drawn beside the metric where jobs have it: it shows what a temperature did to the contrastive space."""
TABLE_CAPTION = "Mean ± half of the 95% t-interval over seeds, the best first."
MARKERS = "osD^vPX"
LOG_FROM = 4.0
"""The greatest value over the least from which an axis of positive values is logarithmic."""
LEAST_VALUES = 3
"""For a picture; of two values the table shows as much."""
CAPTION = (
    "Lines: mean over seeds. Small dots: single seeds. Bands: 95% t-interval of the mean, cut at the frame; none for a "
    "single seed."
)
CROSSES = " Crosses: a seed's value there is no finite number, and so there is no mean."
CROSS_LOW, CROSS_STEP = 0.03, 0.04
"""Of the axis' height, of the first line's crosses and between those of two lines."""

Values = Mapping[str, str]
"""Swept key → value."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """One point of the sweep, its seeds together."""

    values: Values
    """Without the seed."""
    seeds: Mapping[str, float]
    """Seed → metric."""

    @property
    def estimate(self) -> SeedEstimate:
        return over_seeds(list(self.seeds.values()))


def summarise_points(
    folder: Path, values: Mapping[int, Values], metrics: Mapping[int, Mapping[str, float]], *, primary: Sequence[str]
) -> list[str]:
    """Print the table, write it and its pictures into ``folder``; returns the lines that follow it.

    Args:
        folder: of the sweep.
        values: swept values by the job's number.
        metrics: of each job that succeeded, by its number.
        primary: the metrics that may decide, the first first.
    """
    metric = shared_metric(list(metrics.values()), primary)
    if metric is None:
        return [f"no job left any of {', '.join(primary)}: no table"] if metrics else []
    points = points_of(values, {number: found[metric] for number, found in metrics.items() if metric in found})
    keys = list(dict.fromkeys(key for point in points for key in point.values))
    written = [folder / CSV, *_draw_all(folder, points, metric, ".png")]
    records = [(point.estimate, [point.values.get(key, "") for key in keys]) for point in points]
    lines = [[*cells, metric, found.n, found.value, found.half] for found, cells in records]
    write_text(folder / CSV, as_csv([*keys, "metric", "seeds", "mean", "half_95"], lines))
    rows = [[*cells, str(found.n), three_decimals(found)] for found, cells in records]
    head, left = [*keys, "seeds", "mean"], range(len(keys))
    Table(head=head, rows=rows, title=metric, caption=TABLE_CAPTION, left=left, simple=True).show(wide=WIDE)
    cosines = {number: found[POSITIVE_COSINE] for number, found in metrics.items() if POSITIVE_COSINE in found}
    written += _draw_all(folder, points_of(values, cosines), POSITIVE_COSINE, ".positive_cosine.png")
    return [f"Written: {path}" for path in written]


def shared_metric(jobs: Sequence[Mapping[str, float]], primary: Sequence[str]) -> str | None:
    """The first of ``primary`` that most jobs have."""
    counts = {name: sum(name in job for job in jobs) for name in primary}
    return max(primary, key=lambda name: counts[name]) if any(counts.values()) else None


def points_of(values: Mapping[int, Values], metric: Mapping[int, float]) -> list[Point]:
    """Jobs that differ by seed alone as one point, the greatest mean first; what is not finite last."""
    seeds: dict[tuple[tuple[str, str], ...], dict[str, float]] = defaultdict(dict)
    for number, found in metric.items():
        swept = values[number]
        point = tuple((key, value) for key, value in swept.items() if key != SEED)
        seeds[point][swept.get(SEED, str(number))] = found
    points = [Point(values=dict(point), seeds=found) for point, found in seeds.items()]
    return sorted(points, key=lambda one: -one.estimate.value if math.isfinite(one.estimate.value) else math.inf)


def _draw_all(folder: Path, points: Sequence[Point], metric: str, ending: str) -> Iterator[Path]:
    """A picture for each swept number; none where no job has a finite metric."""
    if any(math.isfinite(value) for point in points for value in point.seeds.values()):
        for key in numeric_keys([point.values for point in points]):
            path = folder / f"{key}{ending}"
            draw(points, key=key, metric=metric).savefig(path, dpi=160)
            yield path


def numeric_keys(points: Sequence[Values]) -> list[str]:
    """The keys that are a number at every point, of at least ``LEAST_VALUES`` values."""
    keys = dict.fromkeys(key for point in points for key in point)
    columns = {key: [_number(point.get(key)) for point in points] for key in keys}
    return [key for key, found in columns.items() if None not in found and len(set(found)) >= LEAST_VALUES]


def _number(text: str | None) -> float | None:
    """The finite number that a value is written as; None for anything else."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def lines_of(points: Sequence[Point], key: str) -> dict[str, dict[float, Sequence[float]]]:
    """Label of the other values → value of ``key`` → the metric of each seed."""
    lines: dict[tuple[tuple[str, str], ...], dict[float, Sequence[float]]] = defaultdict(dict)
    for point in points:
        others = tuple((name, value) for name, value in point.values.items() if name != key)
        if (at := _number(point.values.get(key))) is not None:
            lines[others][at] = list(point.seeds.values())
    ordered = sorted(lines.items(), key=lambda item: [(_number(value) or 0.0, value) for _, value in item[0]])
    return {
        ", ".join(f"{name}={value}" for name, value in others): dict(sorted(line.items())) for others, line in ordered
    }


def draw(points: Sequence[Point], *, key: str, metric: str) -> Figure:
    """The picture for one key; at least one seed of one point is a finite number."""
    figure = Figure(figsize=(7.2, 4.6), layout="constrained")
    axes, lines = figure.subplots(), lines_of(points, key)
    for index, (label, line) in enumerate(lines.items()):
        _draw_line(axes, line, label, index)
    ats = sorted({at for line in lines.values() for at in line})
    if ats[0] > 0 and ats[-1] / ats[0] >= LOG_FROM:
        axes.set_xscale("log")
    axes.set_xticks(ats, [f"{at:g}" for at in ats])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    seeds = [value for point in points for value in point.seeds.values()]
    finite = [value for value in seeds if math.isfinite(value)]
    limit_to(axes, finite, margin=0.25)
    if is_share(metric):
        axes.yaxis.set_major_formatter(PercentFormatter(xmax=1))
    axes.set_xlabel(key)
    axes.set_ylabel(metric)
    if len(lines) > 1:
        figure.legend(frameon=False, loc="outside upper left", ncols=2 if max(map(len, lines)) <= 36 else 1)
    write_caption(figure, CAPTION if len(finite) == len(seeds) else CAPTION + CROSSES, width=110)
    return figure


def _draw_line(axes: Axes, line: Mapping[float, Sequence[float]], label: str, index: int) -> None:
    colour, dashes = COLOURS[index % len(COLOURS)], DASHES[index // len(COLOURS) % len(DASHES)]
    estimates = {at: over_seeds(seeds) for at, seeds in line.items()}
    means = finite_or_gap(each.value for each in estimates.values())
    look: dict[str, Any] = {"color": colour, "linestyle": dashes, "marker": MARKERS[index % len(MARKERS)]}
    axes.plot(list(estimates), means, linewidth=2, label=label, zorder=3, **look)
    fill_band(axes, list(estimates), list(estimates.values()), color=colour)
    for at, seeds in line.items():
        axes.plot([at] * len(seeds), finite_or_gap(seeds), ".", color=colour, markersize=4, alpha=0.6)
    if crosses := [at for at, mean in zip(estimates, means, strict=True) if math.isnan(mean)]:
        heights = [CROSS_LOW + CROSS_STEP * index] * len(crosses)
        axes.plot(crosses, heights, "x", color=colour, markersize=6, transform=axes.get_xaxis_transform())

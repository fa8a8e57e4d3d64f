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

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, NullLocator, PercentFormatter

from experiments.analysis.pictures import fill_band, finite_or_gap, legend_columns, limit_to, look, write_caption
from experiments.analysis.set_table import three_decimals
from experiments.analysis.statistics import SeedEstimate, is_share, over_seeds
from experiments.system.files import write_text
from experiments.table import Table, as_csv

CSV, SEED = "summary.csv", "seed"
POSITIVE_COSINE = "train/clipo/positive_cosine"
"""Drawn beside the metric where jobs have it: it shows what a temperature did to the contrastive space."""
MARKERS = "osD^vPX"
CAPTION = (
    "Lines: mean over seeds. Small dots: single seeds. Bands: 95% t-interval of the mean, cut at the frame; none for a "
    "single seed."
)
CROSSES = " Crosses: a seed's value there is no finite number, and so there is no mean."

Values = Mapping[str, str]
"""Swept key → value."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """One point of the sweep, its seeds together."""

    values: Values
    """Without the seed."""
    seeds: Sequence[float]
    """The metric of each."""

    @property
    def estimate(self) -> SeedEstimate:
        return over_seeds(self.seeds)


def summarise_points(
    folder: Path, values: Mapping[int, Values], metrics: Mapping[int, Mapping[str, float]], *, primary: Sequence[str]
) -> list[str]:
    """Print the table, write it and its pictures into the sweep's folder; returns the lines that follow it.

    Swept values and the metrics of what succeeded are by the job's number. Of the ``primary`` metrics the first that
    most jobs have decides.
    """
    counts = {name: sum(name in found for found in metrics.values()) for name in primary}
    if not any(counts.values()):
        return [f"no job left any of {', '.join(primary)}: no table"] if metrics else []
    metric = max(primary, key=lambda name: counts[name])
    points = points_of(values, metrics, metric)
    keys = list(dict.fromkeys(key for point in points for key in point.values))
    records, rows = [], []
    for point in points:
        swept, found = {key: point.values.get(key, "") for key in keys}, point.estimate
        records.append({**swept, "metric": metric, "seeds": found.n, "mean": found.value, "half_95": found.half})
        rows.append([*swept.values(), str(found.n), three_decimals(found)])
    write_text(folder / CSV, as_csv(records))
    caption = "Mean ± half of the 95% t-interval over seeds, the best first."
    head, left = [*keys, "seeds", "mean"], range(len(keys))
    Table(head=head, rows=rows, title=metric, caption=caption, left=left, simple=True).show(wide=160)
    cosines = points_of(values, metrics, POSITIVE_COSINE)
    pictures = [*_draw_all(folder, points, metric, ".png")]
    pictures += _draw_all(folder, cosines, POSITIVE_COSINE, ".positive_cosine.png")
    return [f"Written: {path}" for path in (folder / CSV, *pictures)]


def points_of(values: Mapping[int, Values], metrics: Mapping[int, Mapping[str, float]], metric: str) -> list[Point]:
    """Jobs that differ by seed alone as one point, the greatest mean first; what is not finite last."""
    seeds: dict[tuple[tuple[str, str], ...], dict[str, float]] = defaultdict(dict)
    for number, found in metrics.items():
        if metric in found:
            others = {**values[number]}
            seed = others.pop(SEED, str(number))
            seeds[tuple(others.items())][seed] = found[metric]
    points = [Point(values=dict(point), seeds=[*found.values()]) for point, found in seeds.items()]
    return sorted(points, key=lambda one: -one.estimate.value if math.isfinite(one.estimate.value) else math.inf)


def _draw_all(folder: Path, points: Sequence[Point], metric: str, ending: str) -> Iterator[Path]:
    """A picture for each swept number; none where no job has a finite metric."""
    if any(math.isfinite(value) for point in points for value in point.seeds):
        for key in numeric_keys([point.values for point in points]):
            path = folder / f"{key}{ending}"
            draw(points, key=key, metric=metric).savefig(path, dpi=160)
            yield path


def numeric_keys(points: Sequence[Values]) -> list[str]:
    """The keys that are a number at every point, of at least three values: of two the table shows as much."""
    keys = dict.fromkeys(key for point in points for key in point)
    columns = {key: [_number(point.get(key)) for point in points] for key in keys}
    return [key for key, found in columns.items() if None not in found and len(set(found)) >= 3]


def _number(text: str | None) -> float | None:
    """The finite number that a value is written as; None for anything else."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def lines_of(points: Sequence[Point], key: str) -> dict[str, dict[float, Sequence[float]]]:
    """Label of the other values → value of ``key`` → the metric of each seed; in the order of numbers."""
    lines: dict[tuple[tuple[str, str], ...], dict[float, Sequence[float]]] = defaultdict(dict)
    for point in points:
        others = tuple((name, value) for name, value in point.values.items() if name != key)
        if (at := _number(point.values.get(key))) is not None:
            lines[others][at] = point.seeds
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
    if ats[0] > 0 and ats[-1] / ats[0] >= 4:
        axes.set_xscale("log")
    axes.set_xticks(ats, [f"{at:g}" for at in ats])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    seeds = [value for point in points for value in point.seeds]
    finite = [value for value in seeds if math.isfinite(value)]
    limit_to(axes, finite, margin=0.25)
    if is_share(metric):
        axes.yaxis.set_major_formatter(PercentFormatter(xmax=1))
    axes.set_xlabel(key)
    axes.set_ylabel(metric)
    if len(lines) > 1:
        figure.legend(frameon=False, loc="outside upper left", ncols=legend_columns(lines))
    write_caption(figure, CAPTION if len(finite) == len(seeds) else CAPTION + CROSSES, width=110)
    return figure


def _draw_line(axes: Axes, line: Mapping[float, Sequence[float]], label: str, index: int) -> None:
    colour, dashes = look(index)
    ats, estimates = list(line), [over_seeds(seeds) for seeds in line.values()]
    means = finite_or_gap(each.value for each in estimates)
    marker = MARKERS[index % len(MARKERS)]
    axes.plot(ats, means, color=colour, linestyle=dashes, marker=marker, linewidth=2, label=label, zorder=3)
    fill_band(axes, ats, estimates, color=colour)
    for at, seeds in line.items():
        axes.plot([at] * len(seeds), finite_or_gap(seeds), ".", color=colour, markersize=4, alpha=0.6)
    if crosses := [at for at, mean in zip(ats, means, strict=True) if math.isnan(mean)]:
        heights = [0.03 + 0.04 * index] * len(crosses)  # of the axis: those of two lines do not cover each other
        axes.plot(crosses, heights, "x", color=colour, markersize=6, transform=axes.get_xaxis_transform())

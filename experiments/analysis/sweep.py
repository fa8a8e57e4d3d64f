"""Results of a sweep over its swept values: a table, the best point first, and pictures.

The metrics come from the run folders, not from MLflow. Everything is written into the sweep's folder:

    summary.csv, summary.md    the table: every point with the primary metric
    metrics.csv                every point with each of ``CHARTED``
    heat_map.png               the primary metric, if two keys or more were swept
    <key>.png                  the primary metric over a swept number
    <key>.metrics.png          each of ``CHARTED`` over it
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from matplotlib.figure import Figure

from experiments.analysis.figures import Point, draw_heat_map, draw_points, finite_values, number_in
from experiments.analysis.set_table import three_decimals
from experiments.system.files import write_text
from experiments.table import Table, as_csv

SEED = "seed"
CSV, MARKDOWN, METRICS_CSV, HEAT_MAP = "summary.csv", "summary.md", "metrics.csv", "heat_map.png"
TOKENS = "train/spent/tokens"
"""All generated tokens: the cost of a point, which depends on the group size and the number of steps."""
CHARTED = (
    "test/verifier/accuracy",
    "test/verifier/accuracy_sampled",
    "test/verifier/pass_at_*",
    "test/*/verifier/accuracy",
    "train/clipo/*",
    "train/objective/clip_fraction",
    "train/rollout/completion_tokens",
    TOKENS,
)
"""Success, the effect of a temperature on the contrastive space, and cost; training metrics at the last step."""
Values = Mapping[str, str]
"""Swept key → value."""


def summarise_points(
    folder: Path, values: Mapping[int, Values], metrics: Mapping[int, Mapping[str, float]], *, primary: Sequence[str]
) -> list[str]:
    """Prints the table, and writes it and its pictures into the sweep's folder; returns the lines to print after it.

    ``values`` and the ``metrics`` of jobs that succeeded are by job number. The table shows the ``primary`` metric that
    the most jobs have, the first of these on a tie.
    """
    counts = {name: sum(name in found for found in metrics.values()) for name in primary}
    if not any(counts.values()):
        return [f"no job left any of {', '.join(primary)}: no table"] if metrics else []
    metric = max(primary, key=lambda name: counts[name])
    points = points_of(values, metrics, metric)
    charted = _points_by_metric(values, metrics)
    keys = list(dict.fromkeys(key for swept in values.values() for key in swept if key != SEED))
    table = _table(keys, metric, points, charted.get(TOKENS, ()))
    texts = {CSV: as_csv(_records(keys, metric, points)), MARKDOWN: f"**{metric}**\n\n{table.as_markdown()}"}
    if charted:
        texts[METRICS_CSV] = as_csv([row for name, found in charted.items() for row in _records(keys, name, found)])
    for name, text in texts.items():
        write_text(folder / name, text)
    pictures = dict(_pictures(points, metric, charted))
    for name, figure in pictures.items():
        figure.savefig(folder / name, dpi=100 if name == HEAT_MAP else 140)  # 100: the width of MLflow's page
    table.show(wide=160)
    return [f"Written: {folder / name}" for name in (*texts, *pictures)]


def points_of(values: Mapping[int, Values], metrics: Mapping[int, Mapping[str, float]], metric: str) -> list[Point]:
    """Groups jobs that differ only in the seed into points, the greatest mean first; non-finite means come last."""
    seeds: dict[tuple[tuple[str, str], ...], dict[str, float]] = defaultdict(dict)
    for number, found in metrics.items():
        if metric in found:
            others = {**values[number]}
            seed = others.pop(SEED, str(number))
            seeds[tuple(others.items())][seed] = found[metric]
    points = [Point(values=dict(point), seeds=[*found.values()]) for point, found in seeds.items()]
    return sorted(points, key=lambda one: -one.estimate.value if math.isfinite(one.estimate.value) else math.inf)


def numeric_keys(points: Sequence[Values]) -> list[str]:
    """The keys that are a number at every point and have at least three values; for two a table is enough."""
    keys = dict.fromkeys(key for point in points for key in point)
    columns = {key: [number_in(point.get(key)) for point in points] for key in keys}
    return [key for key, found in columns.items() if None not in found and len(set(found)) >= 3]


def _points_by_metric(
    values: Mapping[int, Values], metrics: Mapping[int, Mapping[str, float]]
) -> dict[str, list[Point]]:
    """The points of each metric of ``CHARTED``, in its order, if it has at least two distinct finite values."""
    logged = sorted({name for found in metrics.values() for name in found})
    names = dict.fromkeys(name for pattern in CHARTED for name in logged if fnmatchcase(name, pattern))
    found = {name: points_of(values, metrics, name) for name in names}
    return {name: points for name, points in found.items() if len({*finite_values(points)}) > 1}


def _records(keys: Sequence[str], metric: str, points: Sequence[Point]) -> list[dict[str, object]]:
    records: list[dict[str, object]] = []
    for point in points:
        swept, found = {key: point.values.get(key, "") for key in keys}, point.estimate
        records.append({**swept, "metric": metric, "seeds": found.n, "mean": found.value, "half_95": found.half})
    return records


def _table(keys: Sequence[str], metric: str, points: Sequence[Point], cost: Sequence[Point]) -> Table:
    tokens = {tuple(point.values.items()): f"{point.estimate.value:,.0f}" for point in cost}
    rows = []
    for point in points:
        cells = [*(point.values.get(key, "") for key in keys), str(point.estimate.n), three_decimals(point.estimate)]
        rows.append([*cells, *([tokens.get(tuple(point.values.items()), "")] if tokens else [])])
    head = [*keys, "seeds", "mean", *(["tokens"] if tokens else [])]
    caption = "Mean ± half of the 95% t-interval over seeds, the best first."
    if tokens:
        caption += " Tokens: generated in training, the mean over seeds."
    return Table(head=head, rows=rows, title=metric, caption=caption, left=range(len(keys)), simple=True)


def _pictures(
    points: Sequence[Point], metric: str, charted: Mapping[str, Sequence[Point]]
) -> Iterator[tuple[str, Figure]]:
    """Yields file name and picture: the heat map, and for each swept number the primary metric and the charted ones."""
    if (figure := draw_heat_map(points, metric=metric)) is not None:
        yield HEAT_MAP, figure
    for key in numeric_keys([point.values for point in points]):
        if finite_values(points):
            yield f"{key}.png", draw_points({metric: points}, key=key)
        if charted:
            yield f"{key}.metrics.png", draw_points(charted, key=key)

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
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from experiments.analysis.points import SEED, Point, Values, numeric_keys, points_of
from experiments.analysis.set_table import three_decimals
from experiments.analysis.statistics import over_seeds
from experiments.analysis.sweep_pictures import draw, draw_heat_map, draw_metrics
from experiments.system.files import write_text
from experiments.table import Table, as_csv

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
    write_text(folder / CSV, as_csv(_records(keys, metric, points)))
    table = _table(keys, metric, points, charted.get(TOKENS, ()))
    write_text(folder / MARKDOWN, f"**{metric}**\n\n{table.as_markdown()}")
    table.show(wide=160)
    written = [folder / CSV, folder / MARKDOWN]
    if charted:
        written.append(folder / METRICS_CSV)
        write_text(written[-1], as_csv([row for name, found in charted.items() for row in _records(keys, name, found)]))
    return [f"Written: {path}" for path in (*written, *_draw_all(folder, points, metric, charted))]


def _points_by_metric(
    values: Mapping[int, Values], metrics: Mapping[int, Mapping[str, float]]
) -> dict[str, list[Point]]:
    """The points of each metric of ``CHARTED``, in its order, if it has at least two distinct finite values."""
    logged = dict.fromkeys(name for found in metrics.values() for name in found)
    names = dict.fromkeys(name for pattern in CHARTED for name in sorted(logged) if fnmatchcase(name, pattern))
    found = {name: points_of(values, metrics, name) for name in names}
    return {name: points for name, points in found.items() if len(set(_finite(points))) > 1}


def _finite(points: Sequence[Point]) -> list[float]:
    return [value for point in points for value in point.seeds if math.isfinite(value)]


def _records(keys: Sequence[str], metric: str, points: Sequence[Point]) -> list[dict[str, object]]:
    records: list[dict[str, object]] = []
    for point in points:
        swept, found = {key: point.values.get(key, "") for key in keys}, point.estimate
        records.append({**swept, "metric": metric, "seeds": found.n, "mean": found.value, "half_95": found.half})
    return records


def _table(keys: Sequence[str], metric: str, points: Sequence[Point], cost: Sequence[Point]) -> Table:
    tokens = {tuple(point.values.items()): over_seeds(point.seeds).value for point in cost}
    rows = []
    for point in points:
        found, spent = point.estimate, tokens.get(tuple(point.values.items()))
        own = [] if not tokens else ["" if spent is None else f"{spent:,.0f}"]
        rows.append([*(point.values.get(key, "") for key in keys), str(found.n), three_decimals(found), *own])
    head = [*keys, "seeds", "mean", *(["tokens"] if tokens else [])]
    caption = "Mean ± half of the 95% t-interval over seeds, the best first."
    if tokens:
        caption += " Tokens: generated in training, the mean over seeds."
    return Table(head=head, rows=rows, title=metric, caption=caption, left=range(len(keys)), simple=True)


def _draw_all(
    folder: Path, points: Sequence[Point], metric: str, charted: Mapping[str, Sequence[Point]]
) -> Iterator[Path]:
    """Draws the heat map, and for each swept number the primary metric, if it has a finite value, and the charted ones.

    Yields the paths of the files.
    """
    if (figure := draw_heat_map(points, metric=metric)) is not None:
        figure.savefig(folder / HEAT_MAP, dpi=100)  # the width of MLflow's page
        yield folder / HEAT_MAP
    for key in numeric_keys([point.values for point in points]):
        if _finite(points):
            draw(points, key=key, metric=metric).savefig(folder / f"{key}.png", dpi=160)
            yield folder / f"{key}.png"
        if charted:
            draw_metrics(charted, key=key).savefig(folder / f"{key}.metrics.png", dpi=110)
            yield folder / f"{key}.metrics.png"

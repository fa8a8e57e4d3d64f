"""Points of a sweep or a comparison: runs that differ only in the seed, grouped by their other swept values."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.analysis.statistics import SeedEstimate, over_seeds

SEED = "seed"
Values = Mapping[str, str]
"""Swept key → value."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """One point of the sweep, with all its seeds."""

    values: Values
    """The swept values without the seed."""
    seeds: Sequence[float]
    """The metric of each seed."""

    @property
    def estimate(self) -> SeedEstimate:
        return over_seeds(self.seeds)


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


def finite_values(points: Sequence[Point]) -> list[float]:
    """The finite values of all seeds."""
    return [value for point in points for value in point.seeds if math.isfinite(value)]


def numeric_keys(points: Sequence[Values]) -> list[str]:
    """The keys that are a number at every point and have at least three values; for two a table is enough."""
    keys = dict.fromkeys(key for point in points for key in point)
    columns = {key: [number_in(point.get(key)) for point in points] for key in keys}
    return [key for key, found in columns.items() if None not in found and len(set(found)) >= 3]


def number_in(text: str | None) -> float | None:
    """The finite number in ``text``; None for anything else."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def in_order(text: str) -> tuple[bool, float, str]:
    """A sort key: numbers by value, then other texts."""
    number = number_in(text)
    return number is None, number or 0.0, text


def lines_of(points: Sequence[Point], key: str) -> dict[str, dict[float, Sequence[float]]]:
    """Label of the other values → value of ``key`` → the metric of each seed; in numerical order."""
    lines: dict[tuple[tuple[str, str], ...], dict[float, Sequence[float]]] = defaultdict(dict)
    for point in points:
        others = tuple((name, value) for name, value in point.values.items() if name != key)
        if (at := number_in(point.values.get(key))) is not None:
            lines[others][at] = point.seeds
    ordered = sorted(lines.items(), key=lambda item: [(number_in(value) or 0.0, value) for _, value in item[0]])
    return {
        ", ".join(f"{name}={value}" for name, value in others): dict(sorted(line.items())) for others, line in ordered
    }

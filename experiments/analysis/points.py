"""Points of a sweep or a comparison: runs that differ by seed alone, by the values that set them apart."""

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
    """One point of the sweep, its seeds together."""

    values: Values
    """Without the seed."""
    seeds: Sequence[float]
    """The metric of each."""

    @property
    def estimate(self) -> SeedEstimate:
        return over_seeds(self.seeds)


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


def numeric_keys(points: Sequence[Values]) -> list[str]:
    """The keys that are a number at every point, of at least three values: of two the table shows as much."""
    keys = dict.fromkeys(key for point in points for key in point)
    columns = {key: [number_in(point.get(key)) for point in points] for key in keys}
    return [key for key, found in columns.items() if None not in found and len(set(found)) >= 3]


def number_in(text: str | None) -> float | None:
    """The finite number that a value is written as; None for anything else."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def in_order(text: str) -> tuple[bool, float, str]:
    """Sorts numbers as numbers, and words behind them."""
    number = number_in(text)
    return number is None, number or 0.0, text


def lines_of(points: Sequence[Point], key: str) -> dict[str, dict[float, Sequence[float]]]:
    """Label of the other values → value of ``key`` → the metric of each seed; in the order of numbers."""
    lines: dict[tuple[tuple[str, str], ...], dict[float, Sequence[float]]] = defaultdict(dict)
    for point in points:
        others = tuple((name, value) for name, value in point.values.items() if name != key)
        if (at := number_in(point.values.get(key))) is not None:
            lines[others][at] = point.seeds
    ordered = sorted(lines.items(), key=lambda item: [(number_in(value) or 0.0, value) for _, value in item[0]])
    return {
        ", ".join(f"{name}={value}" for name, value in others): dict(sorted(line.items())) for others, line in ordered
    }

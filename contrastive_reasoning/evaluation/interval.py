"""95% intervals: of a share (Wilson), and of a mean over problems (bootstrap)."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple

import torch

Z95 = 1.959963984540054
"""The 97.5% point of the normal distribution."""
RESAMPLES = 2000


class Interval(NamedTuple):
    low: float
    high: float


def wilson(successes: int, total: int) -> Interval:
    """The 95% score interval of a share (Wilson 1927): never outside [0, 1], sound for none and for all."""
    if not 0 <= successes <= total or total == 0:
        raise ValueError(f"successes must lie between 0 and a positive total, got {successes} of {total}")
    share, spread = successes / total, Z95**2 / total
    centre = (share + spread / 2) / (1 + spread)
    half = Z95 * sqrt(share * (1 - share) / total + spread / (4 * total)) / (1 + spread)
    return Interval(max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half)))


def bootstrap(values: Sequence[float], *, seed: int) -> Interval:
    """The 95% percentile interval of the mean over problems, from 2,000 resamples of them."""
    if not values:
        raise ValueError("an interval needs at least one value")
    table = torch.tensor(values, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    picks = torch.randint(len(table), (RESAMPLES, len(table)), generator=generator)
    low, high = table[picks].mean(1).quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return Interval(low, high)


def mean_interval(values: Sequence[float], *, seed: int) -> Interval:
    """Wilson's where every value is 0 or 1, the bootstrap's otherwise."""
    if values and all(value in (0.0, 1.0) for value in values):
        return wilson(int(sum(values)), len(values))
    return bootstrap(values, seed=seed)

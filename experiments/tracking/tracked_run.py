"""What MLflow tells of a run, with infinities as they were logged."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """A run as MLflow tells it."""

    run_id: str
    experiment: str
    status: str
    start: float
    """Seconds since the epoch."""
    tags: Mapping[str, str]
    params: Mapping[str, str]
    metrics: Mapping[str, float]
    """The last value of each name."""


def as_logged(value: float) -> float:
    """What was logged where MLflow gives back ``value``: it keeps the largest float for an infinity."""
    return math.copysign(math.inf, value) if abs(value) >= sys.float_info.max else value

"""Numbers of a study as text: shares in percent, with what is uncertain about them."""

from __future__ import annotations

import math

from contrastive_reasoning.evaluation import Estimate
from experiments.comparison.seeds import Difference
from experiments.comparison.table import with_sign

ABSENT = "–"


def with_interval(estimate: Estimate, *, signed: bool = False, decimals: int = 1) -> str:
    """``41.2 [38.0, 44.1]``"""
    form = f".{decimals}f"
    value, low, high = (with_sign(100 * n, form) if signed else f"{100 * n:{form}}" for n in estimate)
    return f"{value} [{low}, {high}]"


def over_seeds(estimate: Difference) -> str:
    half = "" if math.isnan(estimate.half) else f" ± {100 * estimate.half:.1f}"
    return f"{with_sign(100 * estimate.value, '.1f')}{half}"

"""Numbers of a study as text: shares in percent, with what is uncertain about them."""

from __future__ import annotations

import math

from contrastive_reasoning.evaluation import Estimate
from experiments.analysis.seeds import Difference
from experiments.analysis.set_table import WELCH
from experiments.analysis.table import with_sign

ABSENT = "–"


def with_interval(estimate: Estimate, *, signed: bool = False, decimals: int = 1) -> str:
    """``41.2 [38.0, 44.1]``"""
    form = f".{decimals}f"
    value, low, high = (with_sign(100 * n, form) if signed else f"{100 * n:{form}}" for n in estimate)
    return f"{value} [{low}, {high}]"


def over_seeds(estimate: Difference) -> str:
    """``+2.0 ± 1.1``; Welch's, of other seeds, is marked."""
    return plus_minus(estimate) + (WELCH if is_welch(estimate) else "")


def plus_minus(estimate: Difference) -> str:
    """``+2.0 ± 1.1``; of one seed ``+2.0``."""
    half = "" if math.isnan(estimate.half) else f" ± {100 * estimate.half:.1f}"
    return f"{with_sign(100 * estimate.value, '.1f')}{half}"


def is_welch(estimate: Difference) -> bool:
    """Whether an interval is Welch's; one seed has none."""
    return estimate.method == "welch" and not math.isnan(estimate.half)

"""Power of a paired comparison: the smallest true difference that it finds significant with probability 0.8.

T = d̄ · √n / s of n pairs follows a noncentral t distribution with n − 1 degrees of freedom and noncentrality δ√n/σ.
Solved for δ:

    P(T > t₀.₉₇₅(n−1)) = 0.8      two-sided level 5%, power 80%; the other tail, which is below 10⁻⁴, is neglected
"""

from __future__ import annotations

import math
from statistics import stdev

from scipy.special import nctdtrinc, stdtrit

from experiments.analysis.study_rows import Gain
from experiments.studies.plan import AUC, Study

POWER = 0.8
ASSUMED_SPREAD, ASSUMED_SPREAD_OF_AUC = 0.03, 0.02
"""Assumed standard deviation of the pairs' differences, before any are observed: of final success, and of AUC."""


def detectable_difference(spread: float, pairs: int) -> float:
    """The mean difference that ``pairs`` pairs detect, in the unit of ``spread``, the standard deviation over pairs.

    NaN for a single pair, which has no spread.
    """
    if pairs < 2:
        return math.nan
    noncentrality = nctdtrinc(pairs - 1, 1 - POWER, stdtrit(pairs - 1, 0.975))
    return float(noncentrality) * spread / math.sqrt(pairs)


def power_sentence(study: Study, gain: Gain | None = None) -> str:
    """A sentence on the difference that the study detects with all its pairs.

    With ``gain``, that of the primary arm, it also gives the difference at the observed spread.
    """
    planned = min(study.arms[arm].seeds for arm in (study.primary.arm, study.primary.baseline))
    if planned < 2:
        return "One pair shows no spread, and so detects no difference."
    spread = ASSUMED_SPREAD_OF_AUC if study.primary.metric == AUC else ASSUMED_SPREAD
    what = f"What it can detect (paired t, two-sided 5%, power 80%): {_detects(planned, spread)}, assumed"
    differences = [] if gain is None else [*gain.by_seed.values()]
    pairs = len(differences)
    if gain is None or gain.over_seeds.method != "paired" or pairs < 2 or not all(map(math.isfinite, differences)):
        return f"{what}."
    return f"{what}; {_detects(pairs, stdev(differences))}, observed."


def _detects(pairs: int, spread: float) -> str:
    found = 100 * detectable_difference(spread, pairs)
    return f"{pairs} pairs see {found:.1f} points with a spread of {100 * spread:.1f} points between them"

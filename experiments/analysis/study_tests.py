"""The tests that a study's file fixes: a family of differences with Holm's correction, equivalences; and their power.

All are of the primary metric, by Student's t over the seeds that both arms have. A pair with fewer than two of them is
undecided, and still counts in Holm's family.

Power: T = d̄ · √n / s of n pairs follows a noncentral t distribution with n − 1 degrees of freedom and noncentrality
δ√n/σ. The smallest difference δ that is found significant with probability 0.8 solves

    P(T > t₀.₉₇₅(n−1)) = 0.8      two-sided level 5%, power 80%; the other tail, which is below 10⁻⁴, is neglected
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import stdev

from scipy.special import nctdtrinc, stdtrit

from experiments.analysis.statistics import equivalence, holm, over_seeds, paired_p, shared_seeds
from experiments.analysis.study_results import ArmResult
from experiments.analysis.study_rows import Gain
from experiments.jobs.study_plan import AUC, Study
from experiments.table import ABSENT, Table, with_sign

LEVEL, POWER = 0.05, 0.8
ASSUMED_SPREAD, ASSUMED_SPREAD_OF_AUC = 0.03, 0.02
"""Assumed standard deviation of the pairs' differences, before any are observed: of final success, and of AUC."""


def family_table(study: Study, arms: Sequence[ArmResult]) -> Table | None:
    """The differences of ``study.tests`` with Holm's correction; None without any."""
    if not study.tests:
        return None
    found = [paired_differences(study, arms, pair) for pair in study.tests]
    p_values = [paired_p(differences) if differences else math.nan for differences in found]
    lines = []
    for pair, differences, p, adjusted in zip(study.tests, found, p_values, holm(p_values), strict=True):
        cells = [ABSENT] * 4 + ["undecided"]
        if not math.isnan(p):
            estimate = over_seeds(differences)
            decided = "significant" if adjusted <= LEVEL else "not significant"
            cells = [*_interval(estimate.value, estimate.low, estimate.high), f"{p:.4f}", f"{adjusted:.4f}", decided]
        lines.append([*_named(pair, differences), *cells])
    head = ["pair", "seeds", "difference", "95% interval", "p", "p by Holm", "decision"]
    caption = (
        f"In points of {study.measure}. Student's paired t over seeds; p by Holm is corrected for these "
        f"{len(lines)} tests, and a difference is significant up to {LEVEL:g}. The intervals are not corrected."
    )
    return Table(head=head, rows=lines, caption=caption, left=(0, 6))


def equivalence_table(study: Study, arms: Sequence[ArmResult]) -> Table | None:
    """The differences of ``study.equivalence`` beside its margin; None without any."""
    if study.equivalence is None:
        return None
    margin, lines = study.equivalence.margin, []
    for pair in study.equivalence.pairs:
        differences = paired_differences(study, arms, pair)
        cells = [ABSENT, ABSENT, "undecided"]
        if len(differences) > 1:
            estimate, within = equivalence(differences, margin=margin / 100)
            decided = "equivalent" if within else "not shown to be equivalent"
            cells = [*_interval(estimate.value, estimate.low, estimate.high), decided]
        lines.append([*_named(pair, differences), *cells])
    caption = (
        f"In points of {study.measure}. Equivalent: the 90% interval of the paired difference lies within ±{margin:g} "
        f"points, which is two one-sided t-tests at {LEVEL:g}."
    )
    head = ["pair", "seeds", "difference", "90% interval", "decision"]
    return Table(head=head, rows=lines, caption=caption, left=(0, 4))


def paired_differences(study: Study, arms: Sequence[ArmResult], pair: Sequence[str]) -> list[float]:
    """The differences of the primary metric for each seed that both arms of the pair have, perhaps none."""
    by_arm = {arm.name: arm.by_seed(study.primary.metric) for arm in arms if arm.name in pair}
    ours, theirs = shared_seeds(*(by_arm.get(name, {}) for name in pair))
    return [value - theirs[seed] for seed, value in ours.items()]


def _named(pair: Sequence[str], differences: Sequence[float]) -> list[str]:
    return [" − ".join(pair), str(len(differences))]


def _interval(value: float, low: float, high: float) -> list[str]:
    value, low, high = (100 * number for number in (value, low, high))
    return [with_sign(value, ".1f"), f"[{with_sign(low, '.1f')}, {with_sign(high, '.1f')}]"]


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
    return f"{pairs} pairs detect {found:.1f} points at a spread of {100 * spread:.1f} points between them"

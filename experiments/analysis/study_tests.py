"""The tests that a study's file fixes: a family of differences with Holm's correction, and equivalences.

All are of the primary metric, by Student's t over the seeds that both arms have. A pair with fewer than two of them is
undecided, and still counts in Holm's family.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from experiments.analysis.statistics import equivalence, holm, over_seeds, paired_p, shared_seeds
from experiments.analysis.study_results import ArmResult
from experiments.studies.plan import Study
from experiments.table import Table, with_sign

LEVEL = 0.05
ABSENT = "–"


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

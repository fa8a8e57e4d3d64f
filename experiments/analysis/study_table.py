"""A study's rows and its tests as text tables, and its rows, runs and curves as CSV with all digits."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from experiments.analysis.equal_cost import SHARES, AtCost
from experiments.analysis.evaluation_sets import GREEDY, SAMPLED
from experiments.analysis.statistics import (
    BySeed,
    SeedEstimate,
    difference_in_a_study,
    equivalence,
    holm,
    over_seeds,
    paired_p,
    shared_seeds,
)
from experiments.analysis.study_results import ArmResult
from experiments.analysis.study_rows import PASS_AT, ArmRow, with_interval
from experiments.jobs.study_plan import AUC, Study
from experiments.table import ABSENT, Table, as_csv, with_sign

OTHER_SETTING = re.compile(r"test/([^/]+)/verifier/accuracy")
"""Greedy success in one of the suite's settings other than ``main``."""
LEVEL = 0.05
"""Level of the tests and of the equivalences."""


def study_table(study: Study, rows: Sequence[ArmRow], *, brief: bool) -> Table:
    """The table, shares in percent. ``brief``: for a terminal, the last columns without intervals, and no caption."""
    shares = "/".join(f"{100 * share:g}" for share in SHARES)
    head = [
        *("arm", "seeds", "success", f"Δ to {study.primary.baseline}", "Δ over seeds", "P(improvement)", "IQM"),
        *(f"at {shares}% tokens", "area", f"at {shares}% seconds", "tokens to baseline", "pass@k"),
    ]
    caption = "" if brief else caption_of(study, rows)
    return Table(head=head, rows=[_cells(row, brief=brief) for row in rows], title=study.question, caption=caption)


def _cells(row: ArmRow, *, brief: bool) -> list[str]:
    gain = row.gain
    return [
        row.name,
        str(len(row.arm.seeds)),
        with_interval(row.success),
        with_interval(gain.nested, signed=True) if gain else ABSENT,
        gain.over_seeds.points() if gain else ABSENT,
        with_interval(gain.probability, decimals=0) if gain and gain.probability else ABSENT,
        with_interval(row.interquartile) if row.interquartile else ABSENT,
        _at_shares(row.tokens),
        area(row.tokens, brief=brief),
        _at_shares(row.seconds),
        cost_to_baseline(row.tokens, brief=brief),
        ", ".join(_pass_at(row, k, brief=brief) for k in row.pass_at) or ABSENT,
    ]


def _at_shares(at: AtCost | None) -> str:
    """``30.1 / 36.0 / 41.2 (+2.0 ± 1.1) of 1,000``"""
    if at is None:
        return ABSENT
    gain = f" ({at.gain.points()})" if at.gain else ""
    return " / ".join(f"{100 * value:.1f}" for value in at.values) + gain + f" of {at.cost:,.0f}"


def area(at: AtCost | None, *, brief: bool) -> str:
    """``36.0 (+1.2 ± 0.7)``"""
    if at is None:
        return ABSENT
    height, gain = f"{100 * at.mean_height:.1f}", at.height_gain
    if gain is None:
        return height
    return f"{height} ({with_sign(100 * gain.value, '.1f') if brief else gain.points()})"


def cost_to_baseline(at: AtCost | None, *, brief: bool) -> str:
    """``5,000 [3,200, not reached] (12% of draws never)``"""
    if at is None:
        return ABSENT
    value, interval = _format_cost(at.to_baseline), at.time_to_target
    if brief or interval is None:
        return value
    never = f" ({100 * interval.never:.0f}% of draws never)" if interval.never else ""
    return f"{value} [{_format_cost(interval.low)}, {_format_cost(interval.high)}]{never}"


def _format_cost(cost: float) -> str:
    return "not reached" if math.isinf(cost) else f"{cost:,.0f}"


def _pass_at(row: ArmRow, k: str, *, brief: bool) -> str:
    """``75.0 (k=4, +3.1 [+0.5, +5.7])``"""
    gain = "" if brief or k not in row.pass_gain else f", {with_interval(row.pass_gain[k], signed=True)}"
    return f"{100 * row.pass_at[k]:.1f} (k={k}{gain})"


def caption_of(study: Study, rows: Sequence[ArmRow]) -> str:
    counted = [name for name in ("tokens", "seconds") if any(getattr(row, name) for row in rows)]
    equal = (
        f"{study.curve} at equal {' and '.join(counted)} (Δ over seeds), 100% being what both the arm and "
        f"{study.primary.baseline} spent, named after 'of': tokens generated, seconds of training with the critic's"
        if counted
        else "cost not counted"
    )
    starts = ", each seed with a warm start of its own" if study.start_per_seed else ""
    drawn = f"nested bootstrap intervals over seeds{starts} and problems, with one seed over problems alone"
    if study.primary.metric == AUC:
        drawn = f"bootstrap intervals over seeds{starts}"
    return (
        f"In percent, {study.measure}. Success and Δ with {drawn}; "
        "Δ over seeds with Student's of the pairs, or Welch's (ʷ); P(improvement) over pairs of runs, of two on each "
        "side at least; IQM of the sampled shares of all "
        f"seeds and problems; {equal}; area: the curve's mean height over those tokens (Δ over seeds); tokens to "
        "baseline: until the mean curve reaches the value at which the baseline's ends, with the middle 95% of seeds "
        "drawn again, and how many of the draws never reach it; pass@k: the Δ with the nested bootstrap."
    )


def other_settings_table(study: Study, arms: Sequence[ArmResult]) -> Table | None:
    """Greedy success in the suite's settings other than ``main``; None if the baseline was tested only in ``main``.

    It is not part of the verdict: the primary metric is of ``main``.
    """
    found = {arm.name: dict(sorted(arm.shared_metrics(OTHER_SETTING).items())) for arm in arms}
    return _beside_baseline(study, found, caption="Greedy success in percent, the mean over seeds.")


def final_table(study: Study, arms: Sequence[ArmResult]) -> Table | None:
    """Success of the trained policies, sampled and greedy, beside a primary metric over all of training; else None."""
    if study.primary.metric != AUC:
        return None
    found = {arm.name: {"sampled": arm.by_seed(SAMPLED), "greedy": arm.by_seed(GREEDY)} for arm in arms}
    caption = "Success on the test problems in percent, the mean over seeds."
    return _beside_baseline(study, found, caption=caption)


def _beside_baseline(study: Study, found: Mapping[str, Mapping[str, BySeed]], *, caption: str) -> Table | None:
    """The mean of each quantity that the baseline has, with the Δ to it; None if it has none. ``found``: arm → name."""
    baseline = study.primary.baseline
    lines = []
    for arm, by_name in found.items():
        line = [arm]
        for name, theirs in found[baseline].items():
            ours, delta = by_name.get(name, {}), None
            if ours and arm != baseline:
                delta = difference_in_a_study(ours, theirs, start_per_seed=study.start_per_seed)
            line += [f"{100 * fmean(ours.values()):.1f}" if ours else ABSENT, delta.points() if delta else ABSENT]
        lines.append(line)
    head = ["arm", *(cell for name in found[baseline] for cell in (name, f"Δ to {baseline} over seeds"))]
    return Table(head=head, rows=lines, caption=caption) if found[baseline] else None


def family_table(study: Study, arms: Sequence[ArmResult]) -> Table | None:
    """The differences of ``study.tests`` by Student's paired t with Holm's correction; None without any.

    A pair with fewer than two shared seeds is undecided, and still counts in Holm's family.
    """
    found = [paired_differences(study, arms, pair) for pair in study.tests]
    p_values = [paired_p(differences) if differences else math.nan for differences in found]
    lines = []
    for pair, differences, p, adjusted in zip(study.tests, found, p_values, holm(p_values), strict=True):
        cells = [ABSENT] * 4 + ["undecided"]
        if not math.isnan(p):
            decided = "significant" if adjusted <= LEVEL else "not significant"
            cells = [*_in_points(over_seeds(differences)), f"{p:.4f}", f"{adjusted:.4f}", decided]
        lines.append([" − ".join(pair), str(len(differences)), *cells])
    head = ["pair", "seeds", "difference", "95% interval", "p", "p by Holm", "decision"]
    caption = (
        f"In points of {study.measure}. Student's paired t over seeds; p by Holm is corrected for these "
        f"{len(lines)} tests, and a difference is significant up to {LEVEL:g}. The intervals are not corrected."
    )
    return Table(head=head, rows=lines, caption=caption, left=(0, 6)) if lines else None


def equivalence_table(study: Study, arms: Sequence[ArmResult]) -> Table | None:
    """The differences of ``study.equivalence`` beside its margin; None without any."""
    if study.equivalence is None:
        return None
    margin, lines = study.equivalence.margin, []
    for pair in study.equivalence.pairs:
        differences, cells = paired_differences(study, arms, pair), [ABSENT, ABSENT, "undecided"]
        if len(differences) > 1:
            estimate, within = equivalence(differences, margin=margin / 100)
            cells = [*_in_points(estimate), "equivalent" if within else "not shown to be equivalent"]
        lines.append([" − ".join(pair), str(len(differences)), *cells])
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


def _in_points(estimate: SeedEstimate) -> list[str]:
    value, low, high = (with_sign(100 * n, ".1f") for n in (estimate.value, estimate.low, estimate.high))
    return [value, f"[{low}, {high}]"]


def runs_as_csv(arms: Iterable[ArmResult]) -> str:
    """CSV with one line per run, from which the means are computed.

    Shares are fractions. Tokens and seconds are those of all training; the seconds include the critic's.
    ``critic_seconds_shared`` divides those of the critic by the number of runs that reuse it. Unknown values are empty.
    ``pass_at_8`` is pass@8, for each k of any run.
    """
    arms = list(arms)
    reused = Counter(result.critic for arm in arms for result in arm.seeds.values())
    measured = {name for arm in arms for run in arm.runs for name in run.metrics}
    passes = sorted((match for name in measured if (match := PASS_AT.fullmatch(name))), key=lambda match: int(match[1]))
    return as_csv(
        [
            {
                "arm": arm.name,
                "seed": seed,
                "greedy": fmean(result.greedy),
                "sampled": result.sampled and fmean(result.sampled),
                **{f"pass_at_{match[1]}": result.run.metrics.get(match[0]) for match in passes},
                **result.spent,
                "critic_seconds": result.critic_seconds,
                "critic_seconds_shared": result.critic_seconds and result.critic_seconds / reused[result.critic],
                "auc": result.auc,
                "auroc_siblings": result.auroc_siblings,
                "threads": " ".join(result.threads),
                "processor": "; ".join(result.processors),
                "git_sha": " ".join(result.commits),
                "run_id": result.run.run_id,
            }
            for arm in arms
            for seed, result in arm.seeds.items()
        ]
    )


def curves_as_csv(arms: Iterable[ArmResult]) -> str:
    """CSV with one line per run and validation: step, tokens, seconds with the critic's, greedy and sampled success.

    Shares are fractions. Unknown values are empty.
    """
    return as_csv(
        [
            {"arm": arm.name, "seed": seed, "step": step, **validation}
            for arm in arms
            for seed, result in arm.seeds.items()
            for step, validation in result.validations.items()
        ]
    )

"""A study's rows as a table of text, as CSV with all digits, and every run on a line of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from statistics import fmean

from experiments.analysis.equal_cost import SHARES, AtCost
from experiments.analysis.preregistration import difference_in_a_study
from experiments.analysis.statistics import with_sign
from experiments.analysis.study_results import ArmResult
from experiments.analysis.study_rows import ArmRow, with_interval
from experiments.studies.plan import Study
from experiments.table import Table, as_csv

ABSENT = "–"
COST_COLUMNS = (
    *(f"{share:g}" for share in SHARES),
    *("reach", "delta", "delta_half", "mean_height", "mean_height_delta", "mean_height_delta_half"),
    *("to_baseline", "to_baseline_low", "to_baseline_high", "to_baseline_never"),
)
CSV_COLUMNS = (
    *("arm", "about", "seeds", "success", "success_low", "success_high"),
    *("delta", "delta_low", "delta_high", "delta_half_over_seeds", "delta_method"),
    *("probability", "probability_low", "probability_high", "iqm", "iqm_low", "iqm_high"),
    *(f"{cost}_{name}" for cost in ("tokens", "seconds") for name in COST_COLUMNS),
    *("auroc_siblings", "auroc_siblings_min", "auroc_siblings_max"),
    *("pass_at", "pass_at_delta", "pass_at_delta_low", "pass_at_delta_high", "elsewhere", "run_ids"),
)
RUNS_COLUMNS = (
    *("arm", "seed", "greedy", "sampled", "tokens", "seconds", "critic_seconds", "auroc_siblings"),
    *("threads", "processor", "git_sha", "run_id"),
)


def study_table(study: Study, rows: Sequence[ArmRow], *, brief: bool) -> Table:
    """Shares in percent. ``brief``: for a terminal's width, the last columns without their intervals."""
    shares = "/".join(f"{100 * share:g}" for share in SHARES)
    head = [
        *("arm", "seeds", "success", f"Δ to {study.primary.baseline}", "Δ over seeds", "P(improvement)", "IQM"),
        *(f"at {shares}% tokens", "area", f"at {shares}% seconds", "tokens to baseline", "pass@k"),
    ]
    return Table(head=head, rows=[_cells(row, brief=brief) for row in rows], title=study.question)


def _cells(row: ArmRow, *, brief: bool) -> list[str]:
    gain = row.gain
    return [
        row.name,
        str(len(row.seeds)),
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
    value, interval = _reached(at.to_baseline), at.time_to_target
    if brief or interval is None:
        return value
    never = f" ({100 * interval.never:.0f}% of draws never)" if interval.never else ""
    return f"{value} [{_reached(interval.low)}, {_reached(interval.high)}]{never}"


def _reached(cost: float | None) -> str:
    return "not reached" if cost is None or math.isinf(cost) else f"{cost:,.0f}"


def _pass_at(row: ArmRow, k: str, *, brief: bool) -> str:
    """``75.0 (k=4, +3.1 [+0.5, +5.7])``"""
    gain = "" if brief or k not in row.pass_gain else f", {with_interval(row.pass_gain[k], signed=True)}"
    return f"{100 * row.pass_at[k]:.1f} (k={k}{gain})"


def caption_of(study: Study, rows: Sequence[ArmRow]) -> str:
    """What the columns are."""
    counted = [name for name in ("tokens", "seconds") if any(getattr(row, name) for row in rows)]
    equal = (
        f"{study.curve} at equal {' and '.join(counted)} (Δ over seeds), 100% being what both the arm and "
        f"{study.primary.baseline} spent, named after 'of': tokens generated, seconds of training with the critic's"
        if counted
        else "cost not counted"
    )
    starts = ", each seed with a warm start of its own" if study.start_per_seed else ""
    return (
        f"In percent, {study.primary.metric}. Success and Δ with nested bootstrap intervals over seeds"
        f"{starts} and problems, with one seed over problems alone; "
        "Δ over seeds with Student's of the pairs, or Welch's (ʷ); P(improvement) over pairs of runs, of two on each "
        "side at least; IQM of the sampled shares of all "
        f"seeds and problems; {equal}; area: the curve's mean height over those tokens (Δ over seeds); tokens to "
        "baseline: until the mean curve reaches the value at which the baseline's ends, with the middle 95% of seeds "
        "drawn again, and how many of the draws never reach it; pass@k: the Δ with the nested bootstrap."
    )


def other_settings_table(study: Study, rows: Sequence[ArmRow]) -> Table | None:
    """Greedy success in the suite's settings beside ``main``; None where the baseline was tested in no other.

    Nothing is decided here: the primary metric is of ``main``.
    """
    settings = {row.name: row.other_settings for row in rows}
    baseline = study.primary.baseline
    names, gain = list(settings[baseline]), partial(difference_in_a_study, start_per_seed=study.start_per_seed)
    if not names:
        return None
    lines = []
    for arm, found in settings.items():
        line = [arm]
        for name in names:
            delta = gain(found[name], settings[baseline][name]) if name in found and arm != baseline else None
            line.append(f"{100 * fmean(found[name].values()):.1f}" if name in found else ABSENT)
            line.append(delta.points() if delta else ABSENT)
        lines.append(line)
    head = ["arm", *(heading for name in names for heading in (name, f"Δ to {baseline} over seeds"))]
    return Table(head=head, rows=lines, caption="Greedy success in percent, the mean over seeds.")


def rows_as_csv(study: Study, rows: Sequence[ArmRow]) -> str:
    """For other programs: shares as they are, full run ids."""
    return as_csv(CSV_COLUMNS, [_record(study, row) for row in rows])


def _record(study: Study, row: ArmRow) -> list[object]:
    gain, aurocs = row.gain, row.auroc_siblings.values()
    by_k = [row.pass_at, *({k: found[end] for k, found in row.pass_gain.items()} for end in range(3))]
    settings = {name: fmean(by_seed.values()) for name, by_seed in row.other_settings.items()}
    return [
        *(row.name, study.arms[row.name].about, " ".join(row.seeds), *row.success),
        *((*gain.nested, gain.over_seeds.half, gain.over_seeds.method) if gain else [None] * 5),
        *(gain.probability if gain and gain.probability else [None] * 3),
        *(row.interquartile or [None] * 3),
        *(*_costs(row.tokens), *_costs(row.seconds)),
        *((fmean(aurocs), min(aurocs), max(aurocs)) if aurocs else [None] * 3),
        *(" ".join(f"{name}:{value}" for name, value in found.items()) for found in (*by_k, settings)),
        " ".join(row.run_ids),
    ]


def _costs(at: AtCost | None) -> list[float | None]:
    if at is None:
        return [None] * len(COST_COLUMNS)
    gain, height = ((found.value, found.half) if found else (None, None) for found in (at.gain, at.height_gain))
    interval = at.time_to_target
    ends = (interval.low, interval.high, interval.never) if interval else (None,) * 3
    return [*at.values, at.cost, *gain, at.mean_height, *height, at.to_baseline, *ends]


def runs_as_csv(arms: Sequence[ArmResult]) -> str:
    """Every run on a line of its own: what the means are made of.

    Shares as they are; tokens and seconds of all training, in seconds the critic's before it included. What is unknown
    is empty.
    """
    records = []
    for arm in arms:
        for seed, result in arm.seeds.items():
            sampled = None if result.sampled is None else fmean(result.sampled)
            costs = (result.tokens, result.seconds, result.critic_seconds)
            made_by = (" ".join(result.threads), "; ".join(result.processors), " ".join(result.commits))
            scores = (fmean(result.greedy), sampled)
            records.append([arm.name, seed, *scores, *costs, result.auroc_siblings, *made_by, result.run.run_id])
    return as_csv(RUNS_COLUMNS, records)

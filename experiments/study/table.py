"""A study's rows on the terminal, as Markdown, as LaTeX and, with all digits, as CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from statistics import fmean

from rich.table import Table

from experiments.analysis.table import escaped_latex, tabular, with_sign
from experiments.study.elsewhere import as_cell
from experiments.study.equal_cost import SHARES, AtCost
from experiments.study.plan import Study
from experiments.study.rows import Row
from experiments.study.verdict import verdict
from experiments.study.wording import ABSENT, over_seeds, with_interval

LEFT = ("arm",)
COST_COLUMNS = (
    *("reach", "delta", "delta_half", "mean_height", "mean_height_delta", "mean_height_delta_half"),
    *("to_baseline", "to_baseline_low", "to_baseline_high", "to_baseline_never"),
)
CSV_COLUMNS = (
    *("arm", "about", "seeds", "success", "success_low", "success_high"),
    *("delta", "delta_low", "delta_high", "delta_half_over_seeds", "delta_method"),
    *("probability", "probability_low", "probability_high", "iqm", "iqm_low", "iqm_high"),
    *(f"tokens_{share:g}" for share in SHARES),
    *(f"tokens_{name}" for name in COST_COLUMNS),
    *(f"seconds_{share:g}" for share in SHARES),
    *(f"seconds_{name}" for name in COST_COLUMNS),
    *("auroc_siblings", "auroc_siblings_min", "auroc_siblings_max"),
    *("pass_at", "pass_at_delta", "pass_at_delta_low", "pass_at_delta_high", "elsewhere", "run_ids"),
)


def headers(study: Study) -> list[str]:
    shares = "/".join(f"{100 * share:g}" for share in SHARES)
    return [
        *("arm", "seeds", "success", f"Δ to {study.primary.baseline}", "Δ over seeds", "P(improvement)", "IQM"),
        *(f"at {shares}% tokens", "area", f"at {shares}% seconds", "tokens to baseline", "pass@k"),
    ]


def cells(row: Row, *, brief: bool) -> list[str]:
    """A row as text; shares in percent. ``brief``: for a terminal's width, the last columns without their intervals."""
    gain = row.gain
    return [
        row.name,
        str(len(row.seeds)),
        with_interval(row.success),
        with_interval(gain.nested, signed=True) if gain else ABSENT,
        over_seeds(gain.over_seeds) if gain else ABSENT,
        with_interval(gain.probability, decimals=0) if gain and gain.probability else ABSENT,
        with_interval(row.interquartile) if row.interquartile else ABSENT,
        at_shares(row.tokens),
        area(row.tokens, brief=brief),
        at_shares(row.seconds),
        cost(row.tokens, brief=brief),
        ", ".join(_pass_at(row, k, brief=brief) for k in row.pass_at) or ABSENT,
    ]


def at_shares(at: AtCost | None) -> str:
    """``30.1 / 36.0 / 41.2 (+2.0 ± 1.1) of 1,000``"""
    if at is None:
        return ABSENT
    gain = f" ({over_seeds(at.gain)})" if at.gain else ""
    return " / ".join(f"{100 * value:.1f}" for value in at.values) + gain + f" of {at.cost:,.0f}"


def area(at: AtCost | None, *, brief: bool) -> str:
    """``36.0 (+1.2 ± 0.7)``"""
    if at is None:
        return ABSENT
    gain = at.height_gain
    told = "" if gain is None else with_sign(100 * gain.value, ".1f") if brief else over_seeds(gain)
    return f"{100 * at.mean_height:.1f}" + (f" ({told})" if told else "")


def cost(at: AtCost | None, *, brief: bool) -> str:
    """``5,000 [3,200, not reached] (12% of draws never)``"""
    if at is None:
        return ABSENT
    value = _reached(at.to_baseline)
    if brief or at.reaching is None:
        return value
    never = f" ({100 * at.reaching.never:.0f}% of draws never)" if at.reaching.never else ""
    return f"{value} [{_reached(at.reaching.low)}, {_reached(at.reaching.high)}]{never}"


def _reached(at: float | None) -> str:
    return "not reached" if at is None or math.isinf(at) else f"{at:,.0f}"


def _pass_at(row: Row, k: str, *, brief: bool) -> str:
    """``75.0 (k=4, +3.1 [+0.5, +5.7])``"""
    gain = "" if brief or k not in row.pass_gain else f", {with_interval(row.pass_gain[k], signed=True)}"
    return f"{100 * row.pass_at[k]:.1f} (k={k}{gain})"


def as_markdown(study: Study, rows: Sequence[Row], caption: str, notes: Sequence[str]) -> str:
    head = headers(study)
    rule = ["---" if name in LEFT else "---:" for name in head]
    lines = ["| " + " | ".join(line) + " |" for line in (head, rule, *(cells(row, brief=False) for row in rows))]
    about = [f"- {row.name}: {study.arms[row.name].about}" for row in rows]
    return "\n".join(
        [f"# {study.question}", "", verdict(study, rows), "", *lines, "", caption, "", *about, "", *notes, ""]
    )


def as_latex(study: Study, rows: Sequence[Row], caption: str) -> str:
    """A ``tabular`` for a paper, what it shows in a comment; needs booktabs."""
    lines = [headers(study), *(cells(row, brief=False) for row in rows)]
    return tabular(f"{study.question} {caption}", [list(map(escaped_latex, line)) for line in lines])


def as_rich(study: Study, rows: Sequence[Row]) -> Table:
    """For the terminal."""
    table = Table(title=study.question)
    for name in headers(study):
        table.add_column(name, justify="left" if name in LEFT else "right", overflow="fold")
    for row in rows:
        table.add_row(*cells(row, brief=True))
    return table


def as_csv(study: Study, rows: Sequence[Row]) -> str:
    """For other programs: shares as they are, full run ids."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for row in rows:
        gain = row.gain
        writer.writerow(
            [
                *(row.name, study.arms[row.name].about, " ".join(row.seeds), *row.success),
                *(gain.nested if gain else [""] * 3),
                *((gain.over_seeds.half, gain.over_seeds.method) if gain else [""] * 2),
                *(gain.probability if gain and gain.probability else [""] * 3),
                *(row.interquartile or [""] * 3),
                *_costs(row.tokens),
                *_costs(row.seconds),
                *_aurocs(row),
                *_by_k(row),
                as_cell(row.elsewhere),
                " ".join(row.run_ids),
            ]
        )
    return text.getvalue()


def _costs(at: AtCost | None) -> list[object]:
    if at is None:
        return [""] * (len(SHARES) + len(COST_COLUMNS))
    gain, height = ((found.value, found.half) if found else (None, None) for found in (at.gain, at.height_gain))
    over_draws = (at.reaching.low, at.reaching.high, at.reaching.never) if at.reaching else (None, None, None)
    numbers = [*at.values, at.cost, *gain, at.mean_height, *height, at.to_baseline, *over_draws]
    return ["" if number is None else number for number in numbers]


def _by_k(row: Row) -> list[str]:
    """``1:0.3 4:0.7``: pass@k, and the difference with its ends."""
    found = [row.pass_at, *({k: gain[place] for k, gain in row.pass_gain.items()} for place in range(3))]
    return [" ".join(f"{k}:{value}" for k, value in by_k.items()) for by_k in found]


def _aurocs(row: Row) -> list[object]:
    """Mean, least and most over seeds."""
    values = row.auroc_siblings.values()
    return [fmean(values), min(values), max(values)] if values else [""] * 3


def caption_of(study: Study, rows: Sequence[Row]) -> str:
    """What the columns are."""
    counted = [name for name in ("tokens", "seconds") if any(getattr(row, name) for row in rows)]
    equal = (
        f"{study.curve} at equal {' and '.join(counted)} (Δ over seeds), 100% being what both the arm and "
        f"{study.primary.baseline} spent, named after 'of': tokens generated, seconds of training with the critic's"
        if counted
        else "compute not counted"
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

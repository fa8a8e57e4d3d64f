"""The rows of a comparison, and the same rows on the terminal, in Markdown, as CSV and as LaTeX."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.markup import escape
from rich.table import Table

from experiments.analysis.arms import Arm
from experiments.analysis.baselines import Against
from experiments.analysis.seeds import Difference, Estimate, Rule, over_seeds, over_shared

ID_LENGTH = 8
CSV_COLUMNS = (
    *("arm", "metric", "seeds", "mean", "half_95", "start_mean", "start_half_95"),
    *("delta", "delta_half_95", "delta_method", "delta_to", "run_ids", "published"),
)
CAPTION = (
    "Mean ± half of the 95% t-interval over seeds; Δ paired over the seeds of both, or Welch's where they share none."
)
LATEX = {
    **{sign: rf"\{sign}" for sign in "_%&#${}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{"±": r"$\pm$", "Δ": r"$\Delta$", "·": r"$\cdot$", "—": "--", "ʷ": r"$^{w}$", "τ": r"$\tau$"},
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One arm."""

    label: str
    final: Estimate
    start: Estimate | None
    """The same quantity before training, where it was measured."""
    delta: Difference | None
    """To the arm that it is compared with; None where there is none."""
    against: str | None
    """The label of that arm."""
    run_ids: Sequence[str]


def rows_of(arms: Sequence[Arm], metric: str, against: Against, rule: Rule = over_shared) -> list[Row]:
    """A row for each arm; at least one run of each has ``metric``. ``rule``: over which seeds a Δ is."""
    return [_row(arm, metric, against.get(arm.label), rule) for arm in arms]


def _row(arm: Arm, metric: str, baseline: Arm | None, rule: Rule) -> Row:
    reference = {} if baseline is None else _by_seed(baseline, metric)
    final = _by_seed(arm, metric)
    start = list(_by_seed(arm, metric.replace("test/", "start/", 1)).values()) if metric.startswith("test/") else []
    return Row(
        label=arm.label,
        final=over_seeds(list(final.values())),
        start=over_seeds(start) if start else None,
        delta=rule(final, reference) if reference else None,
        against=baseline.label if baseline is not None and reference else None,
        run_ids=[run.run_id for run in arm.runs.values()],
    )


def _by_seed(arm: Arm, metric: str) -> dict[str, float]:
    return {seed: run.metrics[metric] for seed, run in arm.runs.items() if metric in run.metrics}


def lines(rows: Sequence[Row]) -> list[list[str]]:
    """The head, and each row as text: with one baseline its name in the head, with several beside each Δ."""
    baselines = list(dict.fromkeys(row.against for row in rows if row.against is not None))
    delta = ["Δ", "to"] if len(baselines) > 1 else [f"Δ to {label}" for label in baselines]
    head = ["arm", "seeds", "trained", "before", *delta, "runs"]
    return [head, *(_cells(row, len(baselines)) for row in rows)]


def _cells(row: Row, baselines: int) -> list[str]:
    ids = " ".join(run_id[:ID_LENGTH] for run_id in row.run_ids)
    delta = [written(row.delta, signed=True), row.against or ""][: min(baselines, 2)]
    return [row.label, str(row.final.n), written(row.final), written(row.start), *delta, ids]


def written(estimate: Estimate | None, *, signed: bool = False) -> str:
    """``0.412 ± 0.031``; of a difference also how it was taken."""
    if estimate is None:
        return ""
    value = with_sign(estimate.value, ".3f") if signed else f"{estimate.value:.3f}"
    half = "" if math.isnan(estimate.half) else f" ± {estimate.half:.3f}"
    method = f" ({estimate.method})" if isinstance(estimate, Difference) and half else ""
    return value + half + method


def with_sign(value: float, form: str) -> str:
    """``+0.031``, ``-inf``; NaN has no sign."""
    return "nan" if math.isnan(value) else f"{value:+{form}}"


def as_rich(rows: Sequence[Row], metric: str) -> Table:
    """For the terminal."""
    table = Table(title=escape(metric), caption=CAPTION)
    head, *body = lines(rows)
    for header in head:
        justify = "left" if header in ("arm", "to", "runs") else "right"
        table.add_column(escape(header), justify=justify, overflow="fold", no_wrap=header == "trained")
    for cells in body:
        table.add_row(*map(escape, cells))
    return table


def as_markdown(rows: Sequence[Row], metric: str) -> str:
    """A pipe table, the caption under it."""
    return markdown_table(lines(rows), left=(0, -1)) + f"\n{metric}. {CAPTION}\n"


def markdown_table(table: Sequence[Sequence[str]], *, left: Sequence[int]) -> str:
    """The first line is the head; ``left`` are the columns that stand to the left."""
    first, *body = table
    places = {place % len(first) for place in left}
    rule = ["---" if place in places else "---:" for place in range(len(first))]
    written_lines = [[cell.replace("|", r"\|").replace("<", "&lt;") for cell in line] for line in (first, rule, *body)]
    return "".join(f"| {' | '.join(line)} |\n" for line in written_lines)


def as_csv(rows: Mapping[str, Sequence[Row]], published: Mapping[str, Mapping[str, float]]) -> str:
    """Full precision and full run ids, for other programs: one line for each arm and metric.

    Args:
        rows: by metric.
        published: figure by label, by metric; in the metric's own unit.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for metric, row in ((metric, row) for metric, found in rows.items() for row in found):
        start = ("", "") if row.start is None else (row.start.value, row.start.half)
        found = row.delta
        delta = ("", "", "", "") if found is None else (found.value, found.half, found.method, row.against)
        ids = " ".join(row.run_ids)
        printed = published.get(metric, {}).get(row.label, "")
        final = row.final
        writer.writerow([row.label, metric, final.n, final.value, final.half, *start, *delta, ids, printed])
    return text.getvalue()


def as_latex(rows: Sequence[Row], metric: str) -> str:
    """A ``tabular`` for a paper, its metric in a comment; needs booktabs. Run ids stay in the CSV."""
    return tabular(f"{metric}. {CAPTION}", [list(map(escaped_latex, line[:-1])) for line in lines(rows)])


def tabular(comment: str, lines: Sequence[Sequence[str]]) -> str:
    """A ``tabular`` of cells that are LaTeX already, the first line its head; needs booktabs."""
    head, *body = [" & ".join(line) + r" \\" for line in lines]
    opening = f"% {comment}\n\\begin{{tabular}}{{l{'r' * (len(lines[0]) - 1)}}}"
    return "\n".join([opening, r"\toprule", head, r"\midrule", *body, r"\bottomrule", r"\end{tabular}", ""])


def escaped_latex(text: str) -> str:
    """A text as LaTeX prints it."""
    return "".join(LATEX.get(character, character) for character in text)

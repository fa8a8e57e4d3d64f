"""The rows of a comparison, and the same rows on the terminal, in Markdown, as CSV and as LaTeX."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.markup import escape
from rich.table import Table

from experiments.comparison.arms import Arm
from experiments.comparison.seeds import Difference, Estimate, difference, over_seeds, shared

ID_LENGTH = 8
CSV_COLUMNS = (
    *("arm", "metric", "seeds", "mean", "half_95", "start_mean", "start_half_95"),
    *("delta", "delta_half_95", "delta_method", "run_ids", "published"),
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
    """To the baseline; None on the baseline's own row and where there is none."""
    run_ids: Sequence[str]


def rows_of(arms: Sequence[Arm], metric: str, baseline: Arm | None) -> list[Row]:
    """A row for each arm; at least one run of each has ``metric``."""
    return [_row(arm, metric, baseline) for arm in arms]


def _row(arm: Arm, metric: str, baseline: Arm | None) -> Row:
    reference = {} if baseline in (None, arm) else _by_seed(baseline, metric)
    final = _by_seed(arm, metric)
    start = list(_by_seed(arm, metric.replace("test/", "start/", 1)).values()) if metric.startswith("test/") else []
    return Row(
        label=arm.label,
        final=over_seeds(list(final.values())),
        start=over_seeds(start) if start else None,
        delta=_delta(final, reference) if reference else None,
        run_ids=[run.run_id for run in arm.runs.values()],
    )


def _delta(final: Mapping[str, float], reference: Mapping[str, float]) -> Difference:
    """Over the seeds that both have, since a seed decides the policy that training begins from.

    A single one of several is too few to leave the others out for.
    """
    ours, theirs = shared(final, reference)
    enough = len(ours) >= min(2, len(final), len(reference))
    return difference(ours, theirs) if enough else difference(final, reference)


def _by_seed(arm: Arm, metric: str) -> dict[str, float]:
    return {seed: run.metrics[metric] for seed, run in arm.runs.items() if metric in run.metrics}


def headers(baseline: Arm | None) -> list[str]:
    """The names of the columns that :func:`cells` fills."""
    return ["arm", "seeds", "trained", "before", *([f"Δ to {baseline.label}"] if baseline else []), "runs"]


def cells(row: Row, *, with_delta: bool) -> list[str]:
    """A row as text."""
    ids = " ".join(run_id[:ID_LENGTH] for run_id in row.run_ids)
    delta = [written(row.delta, signed=True)] if with_delta else []
    return [row.label, str(row.final.n), written(row.final), written(row.start), *delta, ids]


def written(estimate: Estimate | None, *, signed: bool = False) -> str:
    """``0.412 ± 0.031``; of a difference also how it was taken."""
    if estimate is None:
        return ""
    value = f"{estimate.value:+.3f}" if signed else f"{estimate.value:.3f}"
    half = "" if math.isnan(estimate.half) else f" ± {estimate.half:.3f}"
    method = f" ({estimate.method})" if isinstance(estimate, Difference) and half else ""
    return value + half + method


def as_rich(rows: Sequence[Row], metric: str, baseline: Arm | None) -> Table:
    """For the terminal."""
    table = Table(title=escape(metric), caption=CAPTION)
    for header in headers(baseline):
        justify = "left" if header in ("arm", "runs") else "right"
        table.add_column(escape(header), justify=justify, overflow="fold", no_wrap=header == "trained")
    for row in rows:
        table.add_row(*map(escape, cells(row, with_delta=baseline is not None)))
    return table


def as_markdown(rows: Sequence[Row], metric: str, baseline: Arm | None) -> str:
    """A pipe table, the caption under it."""
    body = [cells(row, with_delta=baseline is not None) for row in rows]
    return markdown_table([headers(baseline), *body], left=(0, -1)) + f"\n{metric}. {CAPTION}\n"


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
        delta = ("", "", "") if row.delta is None else (row.delta.value, row.delta.half, row.delta.method)
        ids = " ".join(row.run_ids)
        printed = published.get(metric, {}).get(row.label, "")
        final = row.final
        writer.writerow([row.label, metric, final.n, final.value, final.half, *start, *delta, ids, printed])
    return text.getvalue()


def as_latex(rows: Sequence[Row], metric: str, baseline: Arm | None) -> str:
    """A ``tabular`` for a paper, its metric in a comment; needs booktabs. Run ids stay in the CSV."""
    lines = [line[:-1] for line in (headers(baseline), *(cells(row, with_delta=baseline is not None) for row in rows))]
    return tabular(f"{metric}. {CAPTION}", [list(map(escaped_latex, line)) for line in lines])


def tabular(comment: str, lines: Sequence[Sequence[str]]) -> str:
    """A ``tabular`` of cells that are LaTeX already, the first line its head; needs booktabs."""
    head, *body = [" & ".join(line) + r" \\" for line in lines]
    opening = f"% {comment}\n\\begin{{tabular}}{{l{'r' * (len(lines[0]) - 1)}}}"
    return "\n".join([opening, r"\toprule", head, r"\midrule", *body, r"\bottomrule", r"\end{tabular}", ""])


def escaped_latex(text: str) -> str:
    """A text as LaTeX prints it."""
    return "".join(LATEX.get(character, character) for character in text)

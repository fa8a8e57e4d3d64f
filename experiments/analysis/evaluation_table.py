"""What an evaluation found, as one table: the published rows, ours below them, and the differences.

The rows are kept as a table of the stage's folder; the terminal's and the Markdown form are made from those rows alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from contrastive_reasoning.published import PublishedArm, PublishedTable
from experiments.analysis.published_method import same_model
from experiments.system.files import write_text

NAME, MARKDOWN = "summary", "summary.md"
LABEL, DELTA = "model", "Δ"
PERCENT = 100.0
WIDE = 200
"""Columns of a terminal that is none: nothing is folded in a file."""

Row = Mapping[str, Any]
"""``model`` and, by column, a percentage or None; of a difference the label begins with Δ."""
Line = tuple[str, Mapping[str, float]]
"""A label, and percentages by set or average."""


def summary_rows(suite: Any, results: Mapping[str, Mapping[str, float]], *, model: str | None) -> list[Row]:
    """The rows of the table; differences to published figures only where those are of the same model.

    Args:
        suite: what was run; its ``columns`` name a metric each, and it may have a ``published_table``.
        results: the metrics of ``test``, and of ``start`` where the policy was trained.
        model: that was evaluated, or from which training began: a hub name or a folder of that name.
    """
    ours = {split: _ours(suite.columns, metrics) for split, metrics in results.items()}
    published: PublishedTable | None = getattr(suite, "published_table", None)
    headings = dict(published.columns) if published else {}
    lines = _published_lines(published, model) if published else []
    lines += _our_lines(ours)
    if published:
        figures = _of_model(published, model)
        first, last = next(iter(ours.values())), ours["test"]
        for values, other in ((first, published.base), (last, getattr(suite, "compare_with", None))):
            if other is not None and other in figures:
                lines.append((f"{DELTA} to {other}", _difference(values, figures[other])))
    return [_row(label, values, suite.columns, headings) for label, values in lines]


def _row(label: str, values: Mapping[str, float], columns: Iterable[str], headings: Mapping[str, str]) -> Row:
    figures: dict[str, Any] = {headings.get(column, column): values.get(column) for column in columns}
    return {LABEL: label, **figures}


def _ours(columns: Mapping[str, str], metrics: Mapping[str, float]) -> dict[str, float]:
    return {column: PERCENT * metrics[name] for column, name in columns.items() if name in metrics}


def _published_lines(table: PublishedTable, model: str | None) -> list[Line]:
    """Each method, and below it the Δ that the paper prints; of ``model`` where the paper has figures of it."""
    if others := _of_another_model(table, model):
        told = [[(f"{arm.method} (published)", arm.figures), (f"{DELTA} (published)", arm.deltas)] for arm in others]
        return [line for lines in told for line in lines if line[1]]
    lines: list[Line] = []
    for method, values in table.rows.items():
        lines.append((f"{method} (published)", values))
        if method in table.deltas:
            lines.append((f"{DELTA} (published)", table.deltas[method]))
    return lines


def _of_another_model(table: PublishedTable, model: str | None) -> list[PublishedArm]:
    """What the paper has of ``model``, where that is not the table's own."""
    return [] if same_model(model, table.model) else [arm for arm in table.arms if same_model(model, arm.model)]


def _of_model(table: PublishedTable, model: str | None) -> Mapping[str, Mapping[str, float]]:
    """Method → figures that the paper has of ``model``; none of a model that it does not have."""
    if same_model(model, table.model):
        return table.rows
    return {arm.method: arm.figures for arm in _of_another_model(table, model)}


def _our_lines(ours: Mapping[str, Mapping[str, float]]) -> list[Line]:
    if "start" not in ours:
        return [("ours", ours["test"])]
    return [
        ("ours, before training", ours["start"]),
        ("ours, trained", ours["test"]),
        (f"{DELTA} by training", _difference(ours["test"], ours["start"])),
    ]


def _difference(left: Mapping[str, float], right: Mapping[str, float]) -> dict[str, float]:
    return {column: value - right[column] for column, value in left.items() if column in right}


def written(row: Row) -> list[str]:
    """The row's cells as text: two decimals, a difference with its sign."""
    sign = "+" if str(row[LABEL]).startswith(DELTA) else ""
    figures = [value for column, value in row.items() if column != LABEL]
    return [str(row[LABEL]), *("" if value is None else f"{value:{sign}.2f}" for value in figures)]


def as_markdown(rows: Sequence[Row], caption: str) -> str:
    """A pipe table, the caption under it."""
    head = list(rows[0])
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *map(written, rows)]
    return "\n".join([*("| " + " | ".join(line) + " |" for line in lines), "", caption, ""])


def as_rich(rows: Sequence[Row]) -> Table:
    """For the terminal."""
    table = Table()
    for column in rows[0]:
        table.add_column(column, justify="left" if column == LABEL else "right", no_wrap=True)
    for row in rows:
        table.add_row(*written(row))
    return table


def caption(suite: Any, *, model: str | None) -> str:
    """What the figures are, of which problems, where the published ones come from; ``model`` as for the rows."""
    published: PublishedTable | None = getattr(suite, "published_table", None)
    others = _of_another_model(published, model) if published else []
    sources = dict.fromkeys(arm.source for arm in others) or ([published.source] if published else [])
    of = others[0].model if others else published.model if published else ""
    problems: int | None = getattr(suite, "problems", None)
    parts = [f"{getattr(suite, 'quantity', 'verifier/accuracy')} in %"]
    parts += [f"ours on the first {problems} problems of each set"] if problems is not None else []
    return "; ".join([*parts, *([f"published: {', '.join(sources)}, of {of}"] if published else [])])


def write(folder: Path, rows: Sequence[Row], caption: str) -> None:
    """Leave the table as ``summary.md`` in the stage's folder."""
    write_text(folder / MARKDOWN, as_markdown(rows, caption))


def show(folder: Path) -> None:
    """Print the table of a finished stage, run now or reused; nothing where it has none."""
    kept = folder / "tables" / NAME / "0.json"
    if not kept.is_file() or not (folder / MARKDOWN).is_file():
        return
    caption = (folder / MARKDOWN).read_text(encoding="utf-8").rstrip().splitlines()[-1]
    console = Console()
    if not console.is_terminal:
        console.width = WIDE
    console.print(as_rich(json.loads(kept.read_text(encoding="utf-8"))))
    console.print(f"{caption}; also in {folder / MARKDOWN}", highlight=False, soft_wrap=True)

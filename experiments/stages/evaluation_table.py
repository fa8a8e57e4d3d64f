"""The result table of an evaluation: published rows, our rows below them, and the differences.

The rows are stored in the stage's folder. The terminal and Markdown forms are made from these rows alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from contrastive_reasoning.evaluation.suite import MAIN
from contrastive_reasoning.published import PublishedTable, same_model
from experiments.system.files import write_text
from experiments.table import Table, with_sign

NAME, MARKDOWN = "summary", "summary.md"
LABEL, DELTA = "model", "Δ"
PERCENT = 100.0

Row = Mapping[str, Any]
"""``model`` and, by column, a percentage or None; the label of a difference starts with Δ."""
Figures = Mapping[str, float]
"""Set or average → percentage."""


def summary_rows(
    suite: Any, results: Mapping[str, Mapping[str, float]], *, model: str | None, more: Mapping[str, str] | None = None
) -> list[Row]:
    """Builds the rows of the table, with differences to published figures only for the same model.

    Args:
        suite: has ``columns`` (column → metric) and optionally a ``published_table``.
        results: the metrics of ``test``, and of ``start`` if the policy was trained.
        model: the evaluated model, or the one before training: a hub name or a folder of that name.
        more: further columns with their metrics, such as those of another harness.
    """
    columns = {**suite.columns, **(more or {})}
    ours = {
        split: {column: PERCENT * metrics[name] for column, name in columns.items() if name in metrics}
        for split, metrics in results.items()
    }
    lines: list[tuple[str, Figures]] = []
    published = published_beside(suite, model)
    if published:
        for method, figures in published.rows.items():
            lines.append((f"{method} (published)", figures))
            if method in published.deltas:
                lines.append((f"{DELTA} (published)", published.deltas[method]))
    if "start" in ours:
        lines += [("ours, before training", ours["start"]), ("ours, trained", ours["test"])]
        lines.append((f"{DELTA} by training", difference(ours["test"], ours["start"])))
    else:
        lines.append(("ours", ours["test"]))
    if published and same_model(model, published.model):
        first, last = next(iter(ours.values())), ours["test"]
        for values, other in ((first, published.base), (last, getattr(suite, "compare_with", None))):
            if other is not None and other in published.rows:
                lines.append((f"{DELTA} to {other}", difference(values, published.rows[other])))
    main = getattr(suite, "main_problems", None)
    headings = {**({MAIN: main} if main else {}), **(published.columns if published else {})}
    names = {column: headings.get(column, column) for column in columns}
    return [{LABEL: label, **{name: values.get(column) for column, name in names.items()}} for label, values in lines]


def published_beside(suite: Any, model: str | None) -> PublishedTable | None:
    """Returns the suite's published table, with the rows of ``model`` if the paper has them."""
    table: PublishedTable | None = getattr(suite, "published_table", None)
    return table and table.of(model)


def difference(left: Figures, right: Figures) -> dict[str, float]:
    return {column: value - right[column] for column, value in left.items() if column in right}


def caption(suite: Any, *, model: str | None) -> str:
    """Describes the figures: the quantity, the problems, the source of published ones; ``model`` as for the rows."""
    published, problems = published_beside(suite, model), getattr(suite, "problems", None)
    parts = [f"{getattr(suite, 'quantity', 'verifier/accuracy')} in %"]
    parts += [f"ours on the first {problems} problems of each set"] if problems is not None else []
    parts += [f"published: {published.source}, of {published.model}"] if published else []
    return "; ".join(parts)


def table_of(rows: Sequence[Row], caption: str) -> Table:
    """Formats the rows with two decimals, and differences with a sign."""
    columns = [name for name in rows[0] if name != LABEL]
    cells = []
    for row in rows:
        signed = row[LABEL].startswith(DELTA)
        cells.append([row[LABEL], *(_figure(row[name], signed=signed) for name in columns)])
    return Table(head=[LABEL, *columns], rows=cells, caption=caption, unfolded=range(len(columns) + 1))


def _figure(value: float | None, *, signed: bool) -> str:
    if value is None:
        return ""
    return with_sign(value, ".2f") if signed else f"{value:z.2f}"


def write(folder: Path, rows: Sequence[Row], caption: str) -> None:
    write_text(folder / MARKDOWN, table_of(rows, caption).as_markdown())


def show(folder: Path) -> None:
    """Prints the table of a finished stage, if it has one."""
    kept = folder / "tables" / NAME / "0.json"
    if not kept.is_file() or not (folder / MARKDOWN).is_file():
        return
    caption = (folder / MARKDOWN).read_text(encoding="utf-8").rstrip().splitlines()[-1]
    table_of(json.loads(kept.read_text(encoding="utf-8")), "").show()
    print(f"{caption}; also in {folder / MARKDOWN}")

"""A table over evaluation sets on the terminal, in Markdown, and in LaTeX."""

from __future__ import annotations

from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from experiments.analysis.set_table import Line, SetTable, head, lines
from experiments.analysis.table import escaped_latex, markdown_table, tabular

INDENT = "  "


def as_rich(table: SetTable) -> Table:
    """For the terminal."""
    drawn = Table(caption=escape(table.caption))
    for number, heading in enumerate(head(table)):
        drawn.add_column(escape(heading), justify="right" if number else "left", no_wrap=number > 0)
    for line in lines(table):
        drawn.add_row(*map(escape, _cells(line, INDENT)), style=None if line.is_arm else "dim")
    return drawn


def as_markdown(table: SetTable) -> str:
    """A pipe table, the caption under it."""
    body = [_cells(line, "") for line in lines(table)]
    return markdown_table([head(table), *body], left=(0,)) + f"\n{table.caption}\n"


def as_latex(table: SetTable) -> str:
    """A ``tabular`` for a paper, what it shows in a comment; needs booktabs."""
    rows = (head(table), *(_cells(line, r"\quad ") for line in lines(table)))
    return tabular(table.caption, [_as_latex(cells) for cells in rows])


def _as_latex(cells: Sequence[str]) -> list[str]:
    indent = r"\quad "
    label = cells[0].removeprefix(indent)
    start = indent if label != cells[0] else ""
    return [start + escaped_latex(label), *map(escaped_latex, cells[1:])]


def _cells(line: Line, indent: str) -> list[str]:
    return [line.label if line.is_arm else indent + line.label, line.seeds, *line.cells]

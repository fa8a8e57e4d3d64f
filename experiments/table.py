"""A table of text cells and its forms: on the terminal, as Markdown and as LaTeX; and records as CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

WIDE = 200
"""Columns of an output that is no terminal: in a file nothing is folded."""
LATEX = {
    **{sign: rf"\{sign}" for sign in "_%&#${}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{"±": r"$\pm$", "Δ": r"$\Delta$", "·": r"$\cdot$", "—": "--", "ʷ": r"$^{w}$", "τ": r"$\tau$"},
}


def with_sign(value: float, form: str) -> str:
    """``+0.031``, ``-inf``; nan has no sign, and what rounds to zero no minus."""
    return "nan" if math.isnan(value) else f"{value:+z{form}}"


@dataclass(frozen=True, kw_only=True)
class Table:
    """Cells under headings."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    caption: str = ""
    left: Collection[int] = (0,)
    """Places of the columns of words, which stand to the left; numbers stand to the right."""
    unfolded: Collection[int] = ()
    """Places of the columns that a narrow terminal never folds."""
    under: Collection[int] = ()
    """Places of the rows that belong to the row above: indented and dim."""
    simple: bool = False
    """Without a frame on the terminal, title and caption to the left."""

    def show(self, *, wide: int = WIDE) -> None:
        """Print it; into a file with ``wide`` columns."""
        plain = {"box": box.SIMPLE_HEAD, "title_justify": "left", "caption_justify": "left"} if self.simple else {}
        table = RichTable(title=Text(self.title) or None, caption=Text(self.caption) or None, **plain)
        for place, heading in enumerate(self.head):
            justify = "left" if place in self.left else "right"
            table.add_column(Text(heading), justify=justify, overflow="fold", no_wrap=place in self.unfolded)
        for place, (first, *others) in enumerate(self.rows):
            style, indent = ("dim", "  ") if place in self.under else (None, "")
            table.add_row(*map(Text, (indent + first, *others)), style=style)
        console = Console()
        if not console.is_terminal:
            console.width = wide
        console.print(table)

    def as_markdown(self) -> str:
        """A pipe table, the caption under it."""
        rule = ["---" if place in self.left else "---:" for place in range(len(self.head))]
        lines = [
            [cell.replace("|", r"\|").replace("<", "&lt;") for cell in row] for row in (self.head, rule, *self.rows)
        ]
        caption = f"\n{self.caption}\n" if self.caption else ""
        return "".join(f"| {' | '.join(line)} |\n" for line in lines) + caption

    def as_latex(self) -> str:
        """A ``tabular`` for a paper, title and caption in a comment; needs booktabs."""
        head, *rows = (" & ".join(map(escaped_latex, row)) for row in (self.head, *self.rows))
        body = [rf"\quad {row} \\" if place in self.under else rf"{row} \\" for place, row in enumerate(rows)]
        columns = "l" + "r" * (len(self.head) - 1)
        above = [f"% {' '.join(f'{self.title} {self.caption}'.split())}", rf"\begin{{tabular}}{{{columns}}}"]
        rules = [r"\toprule", rf"{head} \\", r"\midrule", *body, r"\bottomrule"]
        return "\n".join([*above, *rules, r"\end{tabular}", ""])


def escaped_latex(text: str) -> str:
    """A text as LaTeX prints it."""
    return "".join(LATEX.get(character, character) for character in text)


def as_csv(records: Sequence[Mapping[str, object]]) -> str:
    """Records of the same keys for other programs: numbers with all their digits, None as an empty field."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [*records[0]], lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()

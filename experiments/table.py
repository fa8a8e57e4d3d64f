"""A table of text cells, printed on the terminal or written as Markdown or LaTeX; and records as CSV."""

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

ABSENT = "–"
"""A cell without a value."""
WIDE = 200
"""Width in columns if the output is not a terminal, so that nothing is folded in a file."""
LATEX = {
    **{sign: rf"\{sign}" for sign in "_%&#${}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{"±": r"$\pm$", "Δ": r"$\Delta$", "·": r"$\cdot$", "—": "--", "ʷ": r"$^{w}$", "τ": r"$\tau$"},
}


def with_sign(value: float, form: str) -> str:
    """Formats with a sign: ``+0.031``, ``-inf``. nan has no sign, and a value that rounds to zero no minus."""
    return "nan" if math.isnan(value) else f"{value:+z{form}}"


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table with headings."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    caption: str = ""
    left: Collection[int] = (0,)
    """Indices of left-aligned columns (words); the others are right-aligned (numbers)."""
    unfolded: Collection[int] = ()
    """Indices of columns that are never folded on a narrow terminal."""
    under: Collection[int] = ()
    """Indices of rows that belong to the row above; they are indented and dimmed."""
    simple: bool = False
    """On the terminal: no frame, with title and caption on the left."""

    def show(self, *, wide: int = WIDE) -> None:
        """Prints the table, with a width of ``wide`` columns if the output is not a terminal."""
        # Text, because rich reads [brackets] in a str as markup
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
        """Returns a Markdown table with the caption below it."""
        rule = ["---" if place in self.left else "---:" for place in range(len(self.head))]
        lines = [
            [cell.replace("|", r"\|").replace("<", "&lt;") for cell in row] for row in (self.head, rule, *self.rows)
        ]
        caption = f"\n{self.caption}\n" if self.caption else ""
        return "".join(f"| {' | '.join(line)} |\n" for line in lines) + caption

    def as_latex(self) -> str:
        """Returns a LaTeX ``tabular`` with title and caption in a comment; it needs booktabs."""
        head, *rows = (" & ".join(map(escaped_latex, row)) for row in (self.head, *self.rows))
        body = [rf"\quad {row} \\" if place in self.under else rf"{row} \\" for place, row in enumerate(rows)]
        columns = "l" + "r" * (len(self.head) - 1)
        above = [f"% {' '.join(f'{self.title} {self.caption}'.split())}", rf"\begin{{tabular}}{{{columns}}}"]
        rules = [r"\toprule", rf"{head} \\", r"\midrule", *body, r"\bottomrule"]
        return "\n".join([*above, *rules, r"\end{tabular}", ""])


def escaped_latex(text: str) -> str:
    """Escapes a text for LaTeX."""
    return text.translate(str.maketrans(LATEX))


def as_csv(records: Sequence[Mapping[str, object]]) -> str:
    """Returns records with equal keys as CSV: numbers in full precision, None as an empty field."""
    # not pandas: in a column with None it writes whole numbers as floats, and NaN as an empty field
    text = io.StringIO()
    writer = csv.DictWriter(text, [*records[0]], lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()

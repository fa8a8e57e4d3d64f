"""What each arm gained over the baseline, as bars with their intervals over seeds: a panel for each evaluation set.

Diamonds are what a paper printed for the same method and model.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.comparison_table import Row
from experiments.curves import COLOURS
from experiments.set_table import SetTable

ACROSS = 4
"""Panels in a row."""
LONGEST = 34
"""Characters of a label in one line."""
PANEL, LABELS, ROW, LINE, AROUND = 2.7, 2.6, 0.34, 0.13, 1.2
"""Inches: a panel's width, that of the labels, a bar's height, that of a label's further line, and all around."""
MOST_WIDE = 4.0
"""Times the range of the bars that is shown of an interval to either side of them."""
BAR, WHISKER, PUBLISHED = COLOURS[1], COLOURS[0], COLOURS[2]
CAPTION = (
    "Bars: mean over seeds. Lines: 95% t-intervals, paired by seed or Welch's, cut at the frame; none for one seed."
)
DIAMONDS = " Diamonds: as published."


def draw_gains(table: SetTable) -> Figure | None:
    """The bars of a comparison; None where no arm has anything to be compared with."""
    labels = [label for label in table.labels if any(_row(table, name, label) for name in _names(table))]
    if not labels:
        return None
    names = _names(table)
    across, down = min(len(names), ACROSS), -(-len(names) // ACROSS)
    folded = [textwrap.wrap(label.replace("$", r"\$"), LONGEST) for label in labels]
    high = sum(ROW + LINE * (len(lines) - 1) for lines in folded) + AROUND
    figure = Figure(figsize=(LABELS + PANEL * max(across, 2), down * high), layout="constrained")
    panels = figure.subplots(down, across, squeeze=False, sharey=True).flatten()
    for axes, column in zip(panels, table.columns, strict=False):
        _draw(axes, table, column.name, labels)
        axes.set_title(column.heading, fontsize=10)
        axes.set_yticks(range(len(labels)), ["\n".join(lines) for lines in folded], fontsize=9)
    for axes in panels[len(names) :]:
        axes.set_visible(False)
    unit = ", points" if table.is_share else ""
    figure.suptitle(f"Δ {table.metric} to {table.baseline}{unit}".replace("$", r"\$"), fontsize=10, x=0.02, ha="left")
    printed = any(row.deltas for row in table.published.values())
    said = textwrap.fill(CAPTION + (DIAMONDS if printed else ""), 60 + 38 * (max(across, 2) - 1))
    figure.supxlabel(said, fontsize=8, color="0.35", x=0.02, ha="left")
    return figure


def _names(table: SetTable) -> list[str]:
    return [column.name for column in table.columns]


def _row(table: SetTable, column: str, label: str) -> Row | None:
    """The row of an arm that was compared on this set."""
    row = table.rows[column].get(label)
    return row if row is not None and row.delta is not None else None


def _published(table: SetTable, column: str, label: str) -> float | None:
    """The printed gain, in points."""
    row = table.published.get(label)
    return None if row is None else row.deltas.get(column)


def _draw(axes: Axes, table: SetTable, column: str, labels: Sequence[str]) -> None:
    factor = 100.0 if table.is_share else 1.0
    bars = [
        (place, factor * row.delta.value, factor * row.delta.half)
        for place, label in enumerate(labels)
        if (row := _row(table, column, label)) is not None and row.delta is not None
    ]
    found = [(place, _published(table, column, label)) for place, label in enumerate(labels)]
    printed = [(place, gain) for place, gain in found if gain is not None]
    axes.barh([place for place, _, _ in bars], [gain for _, gain, _ in bars], height=0.62, color=BAR, alpha=0.75)
    for place, gain, half in bars:
        if not math.isnan(half):
            axes.plot(
                [gain - half, gain + half], [place, place], marker="|", color=WHISKER, linewidth=1.4, markersize=7
            )
    axes.plot([gain for _, gain in printed], [place for place, _ in printed], "D", color=PUBLISHED, markersize=6)
    axes.axvline(0, color="0.1", linewidth=1.0)
    axes.set_xlim(*_limits(list(_ends(bars, printed)), bars))
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.grid(axis="x", color="0.9")
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _ends(bars: Sequence[tuple[int, float, float]], printed: Sequence[tuple[int, float]]) -> Iterator[float]:
    """Zero and all that must be seen whole."""
    yield 0.0
    yield from (gain for _, gain, _ in bars)
    yield from (gain for _, gain in printed)


def _limits(seen: Sequence[float], bars: Sequence[tuple[int, float, float]]) -> tuple[float, float]:
    """All bars and intervals, these up to ``MOST_WIDE`` times as wide: of two seeds one may flatten every bar."""
    wide = max(seen) - min(seen) or 1.0
    lows = [gain - half for _, gain, half in bars if not math.isnan(half)]
    highs = [gain + half for _, gain, half in bars if not math.isnan(half)]
    low = max(min([*seen, *lows]), min(seen) - MOST_WIDE * wide)
    high = min(max([*seen, *highs]), max(seen) + MOST_WIDE * wide)
    margin = 0.04 * (high - low) or 0.5
    return low - margin, high + margin

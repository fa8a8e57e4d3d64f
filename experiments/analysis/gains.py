"""What each arm gained over its baseline, as bars with their intervals over seeds: a panel for each evaluation set.

Diamonds are what a paper printed for the same method and model.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.analysis.curves import COLOURS
from experiments.analysis.seeds import Difference
from experiments.analysis.set_table import SetTable

ACROSS = 4
"""Panels in a row."""
LONGEST = 34
"""Characters of a label in one line."""
PANEL, LABELS, ROW, LINE, AROUND = 2.7, 2.6, 0.34, 0.13, 1.2
"""Inches: a panel's width, that of the labels, a bar's height, that of a label's further line, and all around."""
MOST_WIDE = 4.0
"""Times the range of the bars that is shown of an interval to either side of them."""
CHARACTERS = 12.0
"""Of the caption in an inch."""
BAR, WHISKER, PUBLISHED = COLOURS[1], COLOURS[0], COLOURS[2]
CAPTION = (
    "Bars: mean over seeds. Lines: 95% t-intervals, paired over the seeds of both or Welch's, cut at the frame; "
    "none for one seed."
)
DIAMONDS = " Diamonds: as published."


def draw_gains(table: SetTable) -> Figure | None:
    """The bars of a comparison; None where no arm has anything to be compared with."""
    names = [column.name for column in table.columns]
    labels = [label for label in table.labels if any(_gain(table, name, label) for name in names)]
    if not labels:
        return None
    across, down = min(len(names), ACROSS), -(-len(names) // ACROSS)
    wide = PANEL * max(across, 2)
    folded = [textwrap.wrap(label.replace("$", r"\$"), LONGEST) for label in labels]
    high = sum(ROW + LINE * (len(lines) - 1) for lines in folded) + AROUND
    figure = Figure(figsize=(LABELS + wide, down * high), layout="constrained")
    panels = figure.subplots(down, across, squeeze=False, sharey=True).flatten()
    for axes, column in zip(panels, table.columns, strict=False):
        _draw(axes, table, column.name, labels)
        axes.set_title(column.heading, fontsize=10)
        axes.set_yticks(range(len(labels)), ["\n".join(lines) for lines in folded], fontsize=9)
    for axes in panels[len(names) :]:
        axes.set_visible(False)
    unit = ", points" if table.is_share else ""
    figure.suptitle(
        f"Δ {table.metric} to {compared_to(table)}{unit}".replace("$", r"\$"), fontsize=10, x=0.02, ha="left"
    )
    printed = any(table.published_deltas(label) for label in labels)
    said = textwrap.fill(CAPTION + (DIAMONDS if printed else ""), int(CHARACTERS * (LABELS + wide)))
    figure.supxlabel(said, fontsize=8, color="0.35", x=0.02, ha="left")
    return figure


def compared_to(table: SetTable) -> str:
    """The one baseline, or that there are several."""
    baselines = dict.fromkeys(table.against.values())
    return next(iter(baselines)) if len(baselines) == 1 else "the baseline of each arm's own setting"


def _gain(table: SetTable, column: str, label: str) -> Difference | None:
    """What an arm gained on this set; None of a baseline, and where it was not tested."""
    row = table.rows[column].get(label)
    return row and row.delta


def _draw(axes: Axes, table: SetTable, column: str, labels: Sequence[str]) -> None:
    factor = 100.0 if table.is_share else 1.0
    found = [(place, _gain(table, column, label)) for place, label in enumerate(labels)]
    bars = [(place, factor * gain.value, factor * gain.half) for place, gain in found if gain is not None]
    printed = [
        (place, deltas[column])
        for place, label in enumerate(labels)
        if column in (deltas := table.published_deltas(label))
    ]
    lengths = [(place, gain) for place, gain, _ in bars if math.isfinite(gain)]
    axes.barh([place for place, _ in lengths], [gain for _, gain in lengths], height=0.62, color=BAR, alpha=0.75)
    for place, gain, _ in bars:
        if not math.isfinite(gain):
            axes.text(0, place, f" {gain:+}", va="center", fontsize=8, color=WHISKER)
    ends = [(place, gain - half, gain + half) for place, gain, half in bars if not math.isnan(half)]
    for place, low, high in ends:
        axes.plot([low, high], [place, place], marker="|", color=WHISKER, linewidth=1.4, markersize=7)
    axes.plot([gain for _, gain in printed], [place for place, _ in printed], "D", color=PUBLISHED, markersize=6)
    axes.axvline(0, color="0.1", linewidth=1.0)
    seen = [0.0, *(gain for _, gain in lengths), *(gain for _, gain in printed)]
    axes.set_xlim(*_limits(seen, [end for _, *pair in ends for end in pair]))
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.grid(axis="x", color="0.9")
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _limits(seen: Sequence[float], ends: Sequence[float]) -> tuple[float, float]:
    """All bars and intervals, these up to ``MOST_WIDE`` times as wide: of two seeds one may flatten every bar."""
    further = MOST_WIDE * (max(seen) - min(seen) or 1.0)
    low = max(min([*seen, *ends]), min(seen) - further)
    high = min(max([*seen, *ends]), max(seen) + further)
    margin = 0.04 * (high - low) or 0.5
    return low - margin, high + margin

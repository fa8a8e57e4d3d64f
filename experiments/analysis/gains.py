"""What each arm gained over its baseline, as bars with their intervals over seeds: a panel for each evaluation set.

Diamonds are what a paper printed for the same method and model.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.analysis.curves import COLOURS, plain_text, write_caption
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
    """The bars of a comparison; None where no arm has a baseline."""
    labels = [label for label in table.labels if any(table.gain(column.name, label) for column in table.columns)]
    if not labels:
        return None
    across, down = min(len(table.columns), ACROSS), -(-len(table.columns) // ACROSS)
    width = LABELS + PANEL * max(across, 2)
    folded = [textwrap.wrap(plain_text(label), LONGEST) for label in labels]
    height = sum(ROW + LINE * (len(lines) - 1) for lines in folded) + AROUND
    figure = Figure(figsize=(width, down * height), layout="constrained")
    panels = figure.subplots(down, across, squeeze=False, sharey=True).flatten()
    for axes, column in zip(panels, table.columns, strict=False):
        _draw(axes, table, column.name, labels)
        axes.set_title(column.heading, fontsize=10)
        axes.set_yticks(range(len(labels)), ["\n".join(lines) for lines in folded], fontsize=9)
    for axes in panels[len(table.columns) :]:
        axes.set_visible(False)
    unit = ", points" if table.is_share else ""
    title = plain_text(f"Δ {table.metric} to {compared_to(table)}{unit}")
    figure.suptitle(title, fontsize=10, x=0.02, ha="left")
    printed = any(table.published_deltas(label) for label in labels)
    write_caption(figure, CAPTION + (DIAMONDS if printed else ""), width=int(CHARACTERS * width))
    return figure


def compared_to(table: SetTable) -> str:
    """The one baseline, or that there are several."""
    baselines = dict.fromkeys(table.against.values())
    return next(iter(baselines)) if len(baselines) == 1 else "the baseline of each arm's own setting"


def _draw(axes: Axes, table: SetTable, column: str, labels: Sequence[str]) -> None:
    factor = 100.0 if table.is_share else 1.0
    gains = {place: gain for place, label in enumerate(labels) if (gain := table.gain(column, label)) is not None}
    bars = {place: factor * gain.value for place, gain in gains.items()}
    finite = {place: length for place, length in bars.items() if math.isfinite(length)}
    axes.barh([*finite], [*finite.values()], height=0.62, color=BAR, alpha=0.75)
    for place in bars.keys() - finite.keys():
        axes.text(0, place, f" {bars[place]:+}", va="center", fontsize=8, color=WHISKER)
    ends: list[float] = []
    for place, gain in gains.items():
        if not math.isnan(gain.half):
            ends += [factor * gain.low, factor * gain.high]
            axes.plot(ends[-2:], [place, place], marker="|", color=WHISKER, linewidth=1.4, markersize=7)
    deltas = {place: table.published_deltas(label) for place, label in enumerate(labels)}
    printed = {place: found[column] for place, found in deltas.items() if column in found}
    axes.plot([*printed.values()], [*printed], "D", color=PUBLISHED, markersize=6)
    axes.axvline(0, color="0.1", linewidth=1.0)
    axes.set_xlim(*_limits([0.0, *finite.values(), *printed.values()], ends))
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.grid(axis="x", color="0.9")
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _limits(shown: Sequence[float], ends: Sequence[float]) -> tuple[float, float]:
    """All bars and intervals, these up to ``MOST_WIDE`` times as wide: of two seeds one may flatten every bar."""
    further = MOST_WIDE * (max(shown) - min(shown) or 1.0)
    low = max(min([*shown, *ends]), min(shown) - further)
    high = min(max([*shown, *ends]), max(shown) + further)
    margin = 0.04 * (high - low) or 0.5
    return low - margin, high + margin

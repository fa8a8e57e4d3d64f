"""A comparison over evaluation sets, as papers print it: arms in rows, sets in columns, the Δ under each arm.

    arm                                         seeds       GSM8K          P1
      before training                               3        85.9        70.7
    grpo                                            3  87.4 ± 1.0  73.0 ± 0.8
      published: GRPO, Qwen2.5-3B-Instruct                  87.79       73.12
    clipo                                           3  88.1 ± 1.4  74.2 ± 0.5
      Δ to grpo                                        +0.7 ± 0.9  +1.2 ± 0.6
      published: GRPO+CLIPO, Qwen2.5-3B-Instruct            88.02       74.60
      published: Δ to GRPO                                  +0.23       +1.48

The lines are text, so that each form of the table is made from the same ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from contrastive_reasoning.published import PublishedArm, PublishedTable
from experiments.analysis.arms import Arm
from experiments.analysis.baselines import Against
from experiments.analysis.curves import is_share
from experiments.analysis.evaluation_sets import Column
from experiments.analysis.published_method import published_arm
from experiments.analysis.seeds import Difference, Estimate, Rule, over_seeds, over_shared
from experiments.analysis.table import Row, rows_of, with_sign

WELCH = " ʷ"
SAME = 1e-9
"""Values that differ by no more are of the same policy."""


@dataclass(frozen=True, kw_only=True)
class SetTable:
    """Arms × sets."""

    metric: str
    columns: Sequence[Column]
    against: Mapping[str, str]
    """By label that of the arm that it is compared with; without those that are compared with none."""
    labels: Sequence[str]
    """Of the arms, in order."""
    rows: Mapping[str, Mapping[str, Row]]
    """By column, by label; an arm that was not tested on a set has no row there."""
    start: Mapping[str, Estimate]
    """By column, before training, where every run of a seed began alike; empty where they did not."""
    published: Mapping[str, PublishedArm]
    """By label."""
    source: str | None
    """Where the published figures come from; None where no arm has any."""

    def published_deltas(self, label: str) -> Mapping[str, float]:
        """By set, the Δ that a paper printed for an arm, where it is to what its baseline repeats; else empty."""
        row, plain = self.published.get(label), self.published.get(self.against.get(label, ""))
        return row.deltas if row and plain and row.plain == plain.method else {}

    @property
    def is_share(self) -> bool:
        """Whether the metric is written in percent."""
        return is_share(self.metric)

    @property
    def caption(self) -> str:
        """What the figures are."""
        unit = "In %. " if self.is_share else ""
        said = (
            f"{self.metric}. {unit}Mean ± half of the 95% t-interval over seeds; "
            "Δ paired over the seeds of both, or Welch's (ʷ)."
        )
        return said if self.source is None else f"{said} Published: {self.source}."


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of the written table."""

    label: str
    seeds: str
    cells: Sequence[str]
    """One for each column, empty where there is nothing."""
    is_arm: bool
    """False for what stands under an arm, or above all."""


def set_table(
    arms: Sequence[Arm],
    columns: Sequence[Column],
    *,
    metric: str,
    against: Against,
    published: PublishedTable | None,
    rule: Rule = over_shared,
) -> SetTable:
    """The table of these arms; those that were tested on none of the sets have empty cells.

    ``rule``: over which seeds a Δ is.
    """
    rows: dict[str, dict[str, Row]] = {}
    for column in columns:
        tested = [arm for arm in arms if any(column.metric in run.metrics for run in arm.runs.values())]
        found = rows_of(tested, column.metric, against, rule)
        rows[column.name] = {arm.label: row for arm, row in zip(tested, found, strict=True)}
    repeated = {arm.label: row for arm in arms if (row := published_arm(arm, published)) is not None}
    return SetTable(
        metric=metric,
        columns=columns,
        against={label: arm.label for label, arm in against.items()},
        labels=[arm.label for arm in arms],
        rows=rows,
        start=common_start(arms, columns),
        published=repeated,
        source="; ".join(dict.fromkeys(row.source for row in repeated.values())) or None,
    )


def head(table: SetTable) -> list[str]:
    """The headings above :func:`lines`."""
    return ["arm", "seeds", *(column.heading for column in table.columns)]


def lines(table: SetTable) -> Iterator[Line]:
    """The lines in order: what all began from, then each arm with what stands under it."""
    if table.start:
        yield _start_line(table, [table.start.get(column.name) for column in table.columns])
    for label in table.labels:
        yield from _arm_lines(table, label)


def _arm_lines(table: SetTable, label: str) -> Iterator[Line]:
    found = [table.rows[column.name].get(label) for column in table.columns]
    seeds = max((row.final.n for row in found if row is not None), default=0)
    finals = [_written(table, row and row.final, seeds=seeds) for row in found]
    yield Line(label=label, seeds=str(seeds), cells=finals, is_arm=True)
    starts = [row and row.start for row in found]
    if any(starts) and not table.start:
        yield _start_line(table, starts)
    if any(row is not None and row.delta is not None for row in found):
        deltas = [_written(table, row and row.delta, seeds=seeds) for row in found]
        yield Line(label=f"Δ to {table.against[label]}", seeds="", cells=deltas, is_arm=False)
    if label in table.published:
        yield from _published_lines(table, table.published[label])


def _published_lines(table: SetTable, row: PublishedArm) -> Iterator[Line]:
    names = [column.name for column in table.columns]
    figures = [f"{row.figures[name]:.2f}" if name in row.figures else "" for name in names]
    model = row.model.rpartition("/")[2]
    yield Line(label=f"published: {row.method}, {model}", seeds="", cells=figures, is_arm=False)
    if row.deltas:
        deltas = [f"{row.deltas[name]:+.2f}" if name in row.deltas else "" for name in names]
        yield Line(label=f"published: Δ to {row.plain}", seeds="", cells=deltas, is_arm=False)


def common_start(arms: Sequence[Arm], columns: Sequence[Column]) -> dict[str, Estimate]:
    """By column, what all arms were before training; nothing at all where runs of one seed began differently."""
    found: dict[str, Estimate] = {}
    for column in columns:
        by_seed: dict[str, float] = {}
        for seed, run in ((seed, run) for arm in arms for seed, run in arm.runs.items()):
            value = run.metrics.get(column.metric.replace("test/", "start/", 1)) if "test/" in column.metric else None
            if value is not None and abs(by_seed.setdefault(seed, value) - value) > SAME:
                return {}
        if by_seed:
            found[column.name] = over_seeds(list(by_seed.values()))
    return found


def _start_line(table: SetTable, found: Sequence[Estimate | None]) -> Line:
    seeds = max((estimate.n for estimate in found if estimate is not None), default=0)
    cells = [_written(table, estimate, seeds=seeds) for estimate in found]
    return Line(label="before training", seeds=str(seeds), cells=cells, is_arm=False)


def _written(table: SetTable, estimate: Estimate | None, *, seeds: int) -> str:
    """``23.9 ± 1.4``; of fewer than ``seeds`` seeds also how many."""
    if estimate is None:
        return ""
    form, factor = (".1f", 100.0) if table.is_share else (".4g", 1.0)
    number = factor * estimate.value
    value = with_sign(number, form) if isinstance(estimate, Difference) else f"{number:{form}}"
    half = "" if math.isnan(estimate.half) else f" ± {factor * estimate.half:{form}}"
    welch = isinstance(estimate, Difference) and estimate.method == "welch"
    fewer = f" [{estimate.n}]" if estimate.n < seeds and not welch else ""
    return value + half + fewer + (WELCH if half and welch else "")

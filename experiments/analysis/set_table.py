"""A comparison over evaluation sets in the layout of papers: arms in rows, sets in columns, the Δ under each arm.

    arm                                         seeds       GSM8K          P1
      before training                               3        85.9        70.7
    grpo                                            3  87.4 ± 1.0  73.0 ± 0.8
      published: GRPO, Qwen2.5-3B-Instruct                  87.79       73.12
    clipo                                           3  88.1 ± 1.4  74.2 ± 0.5
      Δ to grpo                                        +0.7 ± 0.9  +1.2 ± 0.6
      published: GRPO+CLIPO, Qwen2.5-3B-Instruct            88.02       74.60
      published: Δ to GRPO                                  +0.23       +1.48

A single set without published figures is shown in more detail: trained and before, three decimals, run ids.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from contrastive_reasoning.published import PublishedArm, PublishedTable
from experiments.analysis.evaluation_sets import Column, published_arm
from experiments.analysis.runs import ArmRuns
from experiments.analysis.statistics import (
    Difference,
    Rule,
    SeedEstimate,
    difference_over_shared_seeds,
    is_share,
    over_seeds,
)
from experiments.table import Table, as_csv

ID_LENGTH = 8
MOST_NAMED = 3
"""The most gains that the verdict lists."""
SAME = 1e-9
"""Values before training that differ by at most this are of the same policy."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One arm on one set."""

    final: SeedEstimate
    start: SeedEstimate | None
    """The same quantity before training; None if it was not measured."""
    delta: Difference | None
    """The Δ to the arm's baseline; None without a baseline that was tested on the set."""


@dataclass(frozen=True, kw_only=True)
class SetTable:
    """Arms × sets."""

    metric: str
    columns: Sequence[Column]
    arms: Sequence[ArmRuns]
    against: Mapping[str, ArmRuns]
    """Label of an arm → the arm that it is compared with."""
    cells: Mapping[str, Mapping[str, Cell]]
    """Column → label → cell; an arm that was not tested on a set has no cell there."""
    start: Mapping[str, SeedEstimate]
    """Column → value before training, if all runs of a seed have the same one; else empty."""
    published: Mapping[str, PublishedArm]
    """Label of an arm → its published row."""

    def gain(self, column: str, label: str) -> Difference | None:
        """An arm's Δ on a set; None without a baseline, and if the arm was not tested on the set."""
        cell = self.cells[column].get(label)
        return cell and cell.delta

    def published_deltas(self, label: str) -> Mapping[str, float]:
        """Set → published Δ of an arm, if the paper compares with the method that the arm's baseline reproduces."""
        row, baseline = self.published.get(label), self.against.get(label)
        repeated = self.published.get(baseline.label) if baseline else None
        return row.deltas if row and repeated and row.plain == repeated.method else {}

    @property
    def compared_to(self) -> str:
        """The label of the only baseline, or a phrase for several."""
        baselines = dict.fromkeys(arm.label for arm in self.against.values())
        return next(iter(baselines)) if len(baselines) == 1 else "the baseline of each arm's own setting"

    def verdict(self) -> str:
        """One sentence on the first set: each arm's gain over its baseline, and which intervals exclude 0."""
        column = self.columns[0]
        gains = {arm.label: gain for arm in self.arms if (gain := self.gain(column.name, arm.label)) is not None}
        if not gains:
            return "No arm has a baseline here, so nothing is compared."

        def gained(label: str) -> str:
            gain = gains[label]
            known = "significant" if gain.excludes_zero else "not significant"
            return f"{self._written(gain, seeds=gain.n)} ({'one seed' if math.isnan(gain.half) else known})"

        over = f"In {'percentage points of ' * self.is_share}{column.metric}, over {self.compared_to}"
        if len(gains) <= MOST_NAMED:
            return f"{over}: {'; '.join(f'{label} {gained(label)}' for label in gains)}."
        known = sum(gain.excludes_zero for gain in gains.values())
        most = max(gains, key=lambda label: gains[label].value)
        return (
            f"{over}: of {len(gains)} arms {known or 'none'} differ{'s' * (known == 1)} significantly; "
            f"the largest gain is that of {most}, {gained(most)}."
        )

    @property
    def is_share(self) -> bool:
        """Whether the metric is a share, which is written in percent."""
        return is_share(self.metric)

    def as_table(self, *, run_ids: bool = True) -> Table:
        """The table of all sets, or of a single set in detail, then with short ids of the runs if requested."""
        return self.one_set(run_ids=run_ids) if len(self.columns) == 1 and not self.published else self.all_sets()

    def as_csv(self) -> str:
        """CSV in full precision with full run ids: a line for each arm and set, published figures as fractions."""
        pairs = [(column, arm) for column in self.columns for arm in self.arms]
        return as_csv([self._record(*pair) for pair in pairs if pair[1].label in self.cells[pair[0].name]])

    def _record(self, column: Column, arm: ArmRuns) -> dict[str, object]:
        cell, row = self.cells[column.name][arm.label], self.published.get(arm.label)
        printed, start, delta = row and row.figures.get(column.name), cell.start, cell.delta
        return {
            "arm": arm.label,
            "metric": column.metric,
            "seeds": cell.final.n,
            "mean": cell.final.value,
            "half_95": cell.final.half,
            "start_mean": start and start.value,
            "start_half_95": start and start.half,
            "delta": delta and delta.value,
            "delta_half_95": delta and delta.half,
            "delta_method": delta and delta.method,
            "delta_to": delta and self.against[arm.label].label,
            "run_ids": " ".join(run.run_id for run in arm.runs.values()),
            "published": None if printed is None else printed / 100,
        }

    def one_set(self, *, run_ids: bool) -> Table:
        """Results trained and before; the head names a single baseline, and of several each row names its own."""
        baselines = list(dict.fromkeys(arm.label for arm in self.against.values()))
        delta = ["Δ", "to"] if len(baselines) > 1 else [f"Δ to {label}" for label in baselines]
        head = ["arm", "seeds", "trained", "before", *delta, *["runs"] * run_ids]
        (cells,) = self.cells.values()
        rows = []
        for arm in self.arms:
            cell, baseline = cells[arm.label], self.against.get(arm.label)
            ids = " ".join(run.run_id[:ID_LENGTH] for run in arm.runs.values())
            gain = [three_decimals(cell.delta), baseline.label if baseline else ""][: len(delta)]
            estimates = three_decimals(cell.final), three_decimals(cell.start)
            rows.append([arm.label, str(cell.final.n), *estimates, *gain, *[ids] * run_ids])
        caption = (
            "Mean ± half of the 95% t-interval over seeds; Δ paired over the seeds of both, or Welch's where they "
            "share none."
        )
        left = [place for place, heading in enumerate(head) if heading in ("arm", "to", "runs")]
        return Table(head=head, rows=rows, title=self.metric, caption=caption, left=left, unfolded=(2,))

    def all_sets(self) -> Table:
        """The common values before training, then each arm with the lines below it."""
        lines = [self._line("before training", self.start)] if self.start else []
        under = {*range(len(lines))}
        for arm in self.arms:
            first, *others = self._lines(arm.label)
            under |= {len(lines) + place for place, _ in enumerate(others, start=1)}
            lines += [first, *others]
        unit = "In %. " if self.is_share else ""
        source = "; ".join(dict.fromkeys(row.source for row in self.published.values()))
        caption = (
            f"{self.metric}. {unit}Mean ± half of the 95% t-interval over seeds; "
            "Δ paired over the seeds of both, or Welch's (ʷ)." + (f" Published: {source}." if source else "")
        )
        head = ["arm", "seeds", *(column.heading for column in self.columns)]
        return Table(head=head, rows=lines, caption=caption, unfolded=range(1, len(head)), under=under)

    def _lines(self, label: str) -> Iterator[list[str]]:
        """Yields the line of an arm, then its values before training, its Δ and the published figures."""
        cells = {name: found[label] for name, found in self.cells.items() if label in found}
        yield self._line(label, {name: cell.final for name, cell in cells.items()})
        starts = {name: cell.start for name, cell in cells.items() if cell.start}
        if starts and not self.start:
            yield self._line("before training", starts)
        if deltas := {name: cell.delta for name, cell in cells.items() if cell.delta}:
            seeds = max(cell.final.n for cell in cells.values())
            yield self._line(f"Δ to {self.against[label].label}", deltas, seeds=seeds)
        if (row := self.published.get(label)) is not None:
            figures = {f"{row.method}, {row.model.rpartition('/')[2]}": (row.figures, ".2f")}
            figures |= {f"Δ to {row.plain}": (row.deltas, "+.2f")} if row.deltas else {}
            for what, (printed, form) in figures.items():
                names = [column.name for column in self.columns]
                yield [f"published: {what}", "", *(f"{printed[n]:{form}}" if n in printed else "" for n in names)]

    def _line(self, label: str, estimates: Mapping[str, SeedEstimate], *, seeds: int | None = None) -> list[str]:
        """A line with a cell for each column; ``seeds``: the arm's number of seeds, if the line does not show it."""
        most = max((estimate.n for estimate in estimates.values()), default=0) if seeds is None else seeds
        found = [estimates.get(column.name) for column in self.columns]
        cells = ["" if estimate is None else self._written(estimate, seeds=most) for estimate in found]
        return [label, str(most) if seeds is None else "", *cells]

    def _written(self, estimate: SeedEstimate, *, seeds: int) -> str:
        """``23.9 ± 1.4``, followed by the number of seeds if it is below ``seeds`` and the interval is not Welch's."""
        text = estimate.text(".1f", factor=100) if self.is_share else estimate.text(".4g")
        is_welch, mark = False, ""
        if isinstance(estimate, Difference):
            is_welch, mark = estimate.method == "welch", estimate.mark
        return text + (f" [{estimate.n}]" if estimate.n < seeds and not is_welch else "") + mark


def set_table(
    arms: Sequence[ArmRuns],
    columns: Sequence[Column],
    *,
    metric: str,
    against: Mapping[str, ArmRuns],
    published: PublishedTable | None,
    rule: Rule = difference_over_shared_seeds,
) -> SetTable:
    """Builds the table of these arms with published figures; ``rule`` chooses the seeds of a Δ."""

    def cell(arm: ArmRuns, column: Column) -> Cell:
        final, start = arm.metric(column.metric), [*arm.metric(column.start_metric).values()]
        baseline = against[arm.label].metric(column.metric) if arm.label in against else {}
        return Cell(
            final=over_seeds([*final.values()]),
            start=over_seeds(start) if start else None,
            delta=rule(final, baseline) if baseline else None,
        )

    return SetTable(
        metric=metric,
        columns=columns,
        arms=arms,
        against=against,
        cells={
            column.name: {arm.label: cell(arm, column) for arm in arms if arm.metric(column.metric)}
            for column in columns
        },
        start=common_start(arms, columns),
        published={arm.label: row for arm in arms if (row := published_arm(arm, published)) is not None},
    )


def common_start(arms: Sequence[ArmRuns], columns: Sequence[Column]) -> dict[str, SeedEstimate]:
    """Column → value of all arms before training; empty if runs of one seed began differently."""
    found: dict[str, SeedEstimate] = {}
    for column in columns:
        by_seed: dict[str, float] = {}
        for arm in arms:
            for seed, value in arm.metric(column.start_metric).items():
                if abs(by_seed.setdefault(seed, value) - value) > SAME:
                    return {}
        if by_seed:
            found[column.name] = over_seeds([*by_seed.values()])
    return found


def three_decimals(estimate: SeedEstimate | None) -> str:
    """``0.412 ± 0.031``; for a difference with an interval also its method."""
    if estimate is None:
        return ""
    text = estimate.text(".3f")
    return f"{text} ({estimate.method})" if isinstance(estimate, Difference) and "±" in text else text

"""A comparison over evaluation sets, as papers print it: arms in rows, sets in columns, the Δ under each arm.

    arm                                         seeds       GSM8K          P1
      before training                               3        85.9        70.7
    grpo                                            3  87.4 ± 1.0  73.0 ± 0.8
      published: GRPO, Qwen2.5-3B-Instruct                  87.79       73.12
    clipo                                           3  88.1 ± 1.4  74.2 ± 0.5
      Δ to grpo                                        +0.7 ± 0.9  +1.2 ± 0.6
      published: GRPO+CLIPO, Qwen2.5-3B-Instruct            88.02       74.60
      published: Δ to GRPO                                  +0.23       +1.48

One set without published figures is shown with more: trained and before, three decimals, run ids.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

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
"""Gains that one sentence names."""
SAME = 1e-9
"""Values that differ by no more are of the same policy."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One arm on one set."""

    final: SeedEstimate
    start: SeedEstimate | None
    """The same quantity before training, where it was measured."""
    delta: Difference | None
    """To the arm's baseline, where it has one that was tested on the set."""


@dataclass(frozen=True, kw_only=True)
class SetTable:
    """Arms × sets."""

    metric: str
    columns: Sequence[Column]
    arms: Sequence[ArmRuns]
    against: Mapping[str, ArmRuns]
    """Label of an arm → the arm that it is compared with."""
    cells: Mapping[str, Mapping[str, Cell]]
    """By column, by label; an arm that was not tested on a set has no cell there."""
    start: Mapping[str, SeedEstimate]
    """By column, before training, where all runs of a seed began alike; else empty."""
    published: Mapping[str, PublishedArm]
    """By label."""

    def gain(self, column: str, label: str) -> Difference | None:
        """An arm's Δ on a set; None of a baseline, and where it was not tested."""
        cell = self.cells[column].get(label)
        return cell and cell.delta

    def published_deltas(self, label: str) -> Mapping[str, float]:
        """By set, the Δ that a paper printed for an arm, where it is to what its baseline repeats; else empty."""
        row, baseline = self.published.get(label), self.against.get(label)
        repeated = self.published.get(baseline.label) if baseline else None
        return row.deltas if row and repeated and row.plain == repeated.method else {}

    @property
    def compared_to(self) -> str:
        """The one baseline, or that there are several."""
        baselines = dict.fromkeys(arm.label for arm in self.against.values())
        return next(iter(baselines)) if len(baselines) == 1 else "the baseline of each arm's own setting"

    def verdict(self) -> str:
        """One sentence on the first set: what each arm gained over its baseline, and which intervals exclude 0."""
        column = self.columns[0]
        gains = {arm.label: gain for arm in self.arms if (gain := self.gain(column.name, arm.label)) is not None}
        if not gains:
            return "No arm has a baseline here, so nothing is compared."
        unit = "percentage points of " if self.is_share else ""
        over = f"{unit}{column.metric}, over {self.compared_to}"
        if len(gains) > MOST_NAMED:
            known = sum(gain.excludes_zero for gain in gains.values())
            most = max(gains, key=lambda label: gains[label].value)
            best = f"the largest gain is that of {most}, {self._gained(gains[most])}"
            return (
                f"In {over}: of {len(gains)} arms {known or 'none'} differ{'s' * (known == 1)} significantly; {best}."
            )
        return f"In {over}: {'; '.join(f'{label} {self._gained(gain)}' for label, gain in gains.items())}."

    def _gained(self, gain: Difference) -> str:
        """``+2.0 ± 1.1 (significant)``; one seed has no interval, which is said."""
        known = "significant" if gain.excludes_zero else "not significant"
        return f"{self._written(gain, seeds=gain.n)} ({'one seed' if math.isnan(gain.half) else known})"

    @property
    def is_share(self) -> bool:
        """Whether the metric is written in percent."""
        return is_share(self.metric)

    def as_table(self) -> Table:
        """All sets, or the one set with all that is known of it."""
        return self.one_set() if len(self.columns) == 1 and not self.published else self.all_sets()

    def as_latex(self) -> str:
        """For a paper, without run ids."""
        table = self.as_table()
        if table.head[-1] == "runs":
            table = replace(table, head=table.head[:-1], rows=[row[:-1] for row in table.rows])
        return table.as_latex()

    def as_csv(self) -> str:
        """Full precision and full run ids: a line for each arm and set, published figures as shares."""
        records = []
        for column in self.columns:
            for arm in self.arms:
                if (cell := self.cells[column.name].get(arm.label)) is None:
                    continue
                printed = self.published[arm.label].figures.get(column.name) if arm.label in self.published else None
                start, delta = cell.start, cell.delta
                records.append(
                    {
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
                )
        return as_csv(records)

    def one_set(self) -> Table:
        """Trained and before; with one baseline its name stands in the head, with several beside each Δ."""
        baselines = list(dict.fromkeys(arm.label for arm in self.against.values()))
        delta = ["Δ", "to"] if len(baselines) > 1 else [f"Δ to {label}" for label in baselines]
        head = ["arm", "seeds", "trained", "before", *delta, "runs"]
        (cells,) = self.cells.values()
        rows = []
        for arm in self.arms:
            cell, baseline = cells[arm.label], self.against.get(arm.label)
            ids = " ".join(run.run_id[:ID_LENGTH] for run in arm.runs.values())
            gain = [three_decimals(cell.delta), baseline.label if baseline else ""][: len(delta)]
            estimates = three_decimals(cell.final), three_decimals(cell.start)
            rows.append([arm.label, str(cell.final.n), *estimates, *gain, ids])
        caption = (
            "Mean ± half of the 95% t-interval over seeds; Δ paired over the seeds of both, or Welch's where they "
            "share none."
        )
        left = [place for place, heading in enumerate(head) if heading in ("arm", "to", "runs")]
        return Table(head=head, rows=rows, title=self.metric, caption=caption, left=left, unfolded=(2,))

    def all_sets(self) -> Table:
        """What all began from, then each arm with what stands under it."""
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
        """An arm, and below it what it began from, its Δ and the published figures."""
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
        """A cell for each column; ``seeds`` of the line above, where that shows them."""
        most = max((estimate.n for estimate in estimates.values()), default=0) if seeds is None else seeds
        found = [estimates.get(column.name) for column in self.columns]
        cells = ["" if estimate is None else self._written(estimate, seeds=most) for estimate in found]
        return [label, str(most) if seeds is None else "", *cells]

    def _written(self, estimate: SeedEstimate, *, seeds: int) -> str:
        """``23.9 ± 1.4``; of fewer than ``seeds`` seeds also how many."""
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
    """The table of these arms beside what a paper printed; ``rule``: over which seeds a Δ is."""

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
    """By column, what all arms were before training; empty where runs of one seed began differently."""
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
    """``0.412 ± 0.031``; of a difference also how it was taken."""
    if estimate is None:
        return ""
    text = estimate.text(".3f")
    return f"{text} ({estimate.method})" if isinstance(estimate, Difference) and "±" in text else text

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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from contrastive_reasoning.published import PublishedArm, PublishedTable
from experiments.analysis.curves import is_share
from experiments.analysis.evaluation_sets import Column, published_arm
from experiments.analysis.runs import Arm
from experiments.analysis.statistics import (
    WELCH,
    Difference,
    Rule,
    SeedEstimate,
    difference_over_shared_seeds,
    over_seeds,
)
from experiments.table import Table, as_csv

ID_LENGTH = 8
CSV_COLUMNS = (
    *("arm", "metric", "seeds", "mean", "half_95", "start_mean", "start_half_95"),
    *("delta", "delta_half_95", "delta_method", "delta_to", "run_ids", "published"),
)
CAPTION = (
    "Mean ± half of the 95% t-interval over seeds; Δ paired over the seeds of both, or Welch's where they share none."
)
SAME = 1e-9
"""Values that differ by no more are of the same policy."""


@dataclass(frozen=True, kw_only=True)
class SetRow:
    """One arm on one set."""

    label: str
    final: SeedEstimate
    start: SeedEstimate | None
    """The same quantity before training, where it was measured."""
    delta: Difference | None
    """To the arm that it is compared with; None where there is none."""
    against: str | None
    """The label of that arm."""
    run_ids: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class SetTable:
    """Arms × sets."""

    metric: str
    columns: Sequence[Column]
    against: Mapping[str, str]
    """Label of an arm → that of the arm it is compared with."""
    labels: Sequence[str]
    """Of the arms, in order."""
    rows: Mapping[str, Mapping[str, SetRow]]
    """By column, by label; an arm that was not tested on a set has no row there."""
    start: Mapping[str, SeedEstimate]
    """By column, before training, where all runs of a seed began alike; else empty."""
    published: Mapping[str, PublishedArm]
    """By label."""

    def gain(self, column: str, label: str) -> Difference | None:
        """An arm's Δ on a set; None of a baseline, and where it was not tested."""
        row = self.rows[column].get(label)
        return row and row.delta

    def published_deltas(self, label: str) -> Mapping[str, float]:
        """By set, the Δ that a paper printed for an arm, where it is to what its baseline repeats; else empty."""
        row, baseline = self.published.get(label), self.published.get(self.against.get(label, ""))
        return row.deltas if row and baseline and row.plain == baseline.method else {}

    @property
    def is_share(self) -> bool:
        """Whether the metric is written in percent."""
        return is_share(self.metric)

    @property
    def caption(self) -> str:
        unit = "In %. " if self.is_share else ""
        source = "; ".join(dict.fromkeys(row.source for row in self.published.values()))
        return (
            f"{self.metric}. {unit}Mean ± half of the 95% t-interval over seeds; "
            "Δ paired over the seeds of both, or Welch's (ʷ)." + (f" Published: {source}." if source else "")
        )

    def as_table(self) -> Table:
        """All sets, or the one set with all that is known of it."""
        if len(self.columns) == 1 and not self.published:
            return one_set(list(self.rows[self.columns[0].name].values()), self.metric)
        return self.all_sets()

    def as_latex(self) -> str:
        """For a paper, without run ids."""
        table = self.as_table()
        if table.head[-1] == "runs":
            table = replace(table, head=table.head[:-1], rows=[row[:-1] for row in table.rows])
        return table.as_latex()

    def as_csv(self) -> str:
        """Full precision and full run ids: a line for each arm and set, published figures as shares."""
        return as_csv(CSV_COLUMNS, self._records())

    def _records(self) -> Iterator[list[object]]:
        for column in self.columns:
            for label, row in self.rows[column.name].items():
                printed = self.published[label].figures.get(column.name) if label in self.published else None
                start = (row.start.value, row.start.half) if row.start else (None, None)
                delta = (row.delta.value, row.delta.half, row.delta.method, row.against) if row.delta else (None,) * 4
                final = (row.final.n, row.final.value, row.final.half)
                share = None if printed is None else printed / 100
                yield [label, column.metric, *final, *start, *delta, " ".join(row.run_ids), share]

    def all_sets(self) -> Table:
        """What all began from, then each arm with what stands under it."""
        lines = [self._line("before training", self.start)] if self.start else []
        under = {*range(len(lines))}
        for label in self.labels:
            arm, *others = self._arm_lines(label)
            under |= {len(lines) + place for place, _ in enumerate(others, start=1)}
            lines += [arm, *others]
        head = ["arm", "seeds", *(column.heading for column in self.columns)]
        return Table(head=head, rows=lines, caption=self.caption, unfolded=range(1, len(head)), under=under)

    def _arm_lines(self, label: str) -> Iterator[list[str]]:
        """An arm, and below it what it began from, its Δ and the published figures."""
        rows = {name: found[label] for name, found in self.rows.items() if label in found}
        seeds = max((row.final.n for row in rows.values()), default=0)
        yield self._line(label, {name: row.final for name, row in rows.items()})
        starts = {name: row.start for name, row in rows.items() if row.start}
        if starts and not self.start:
            yield self._line("before training", starts)
        if deltas := {name: row.delta for name, row in rows.items() if row.delta}:
            yield self._line(f"Δ to {self.against[label]}", deltas, seeds=seeds)
        if (row := self.published.get(label)) is not None:
            model = row.model.rpartition("/")[2]
            yield [f"published: {row.method}, {model}", "", *self._printed(row.figures, ".2f")]
            if row.deltas:
                yield [f"published: Δ to {row.plain}", "", *self._printed(row.deltas, "+.2f")]

    def _line(self, label: str, estimates: Mapping[str, SeedEstimate], *, seeds: int | None = None) -> list[str]:
        """A cell for each column; ``seeds`` of the line above, where that shows them."""
        most = max((estimate.n for estimate in estimates.values()), default=0) if seeds is None else seeds
        found = [estimates.get(column.name) for column in self.columns]
        cells = ["" if estimate is None else self._written(estimate, seeds=most) for estimate in found]
        return [label, str(most) if seeds is None else "", *cells]

    def _written(self, estimate: SeedEstimate, *, seeds: int) -> str:
        """``23.9 ± 1.4``; of fewer than ``seeds`` seeds also how many."""
        text = estimate.text(".1f", factor=100) if self.is_share else estimate.text(".4g")
        is_difference = isinstance(estimate, Difference)
        fewer = estimate.n < seeds and not (is_difference and estimate.method == "welch")
        return text + (f" [{estimate.n}]" if fewer else "") + WELCH * (is_difference and estimate.is_welch)

    def _printed(self, figures: Mapping[str, float], form: str) -> list[str]:
        return [f"{figures[column.name]:{form}}" if column.name in figures else "" for column in self.columns]


def set_table(
    arms: Sequence[Arm],
    columns: Sequence[Column],
    *,
    metric: str,
    against: Mapping[str, Arm],
    published: PublishedTable | None,
    rule: Rule = difference_over_shared_seeds,
) -> SetTable:
    """The table of these arms.

    Args:
        arms: in order; those that were tested on none of the sets have empty cells.
        columns: the sets.
        metric: by its name for the main set.
        against: label of an arm → the arm that it is compared with.
        published: what a paper printed of this metric.
        rule: over which seeds a Δ is.
    """
    repeated = {arm.label: row for arm in arms if (row := published_arm(arm, published)) is not None}
    return SetTable(
        metric=metric,
        columns=columns,
        against={label: arm.label for label, arm in against.items()},
        labels=[arm.label for arm in arms],
        rows={column.name: rows_of(arms, column, against, rule) for column in columns},
        start=common_start(arms, columns),
        published=repeated,
    )


def rows_of(arms: Sequence[Arm], column: Column, against: Mapping[str, Arm], rule: Rule) -> dict[str, SetRow]:
    """By label, the arms that were tested on a set."""
    return {arm.label: _row(arm, column, against.get(arm.label), rule) for arm in arms if arm.metric(column.metric)}


def _row(arm: Arm, column: Column, baseline: Arm | None, rule: Rule) -> SetRow:
    final, reference = arm.metric(column.metric), baseline.metric(column.metric) if baseline else {}
    start = list(arm.metric(column.start_metric).values())
    return SetRow(
        label=arm.label,
        final=over_seeds(list(final.values())),
        start=over_seeds(start) if start else None,
        delta=rule(final, reference) if reference else None,
        against=baseline.label if baseline is not None and reference else None,
        run_ids=[run.run_id for run in arm.runs.values()],
    )


def common_start(arms: Sequence[Arm], columns: Sequence[Column]) -> dict[str, SeedEstimate]:
    """By column, what all arms were before training; empty where runs of one seed began differently."""
    found: dict[str, SeedEstimate] = {}
    for column in columns:
        by_seed: dict[str, float] = {}
        for arm in arms:
            for seed, value in arm.metric(column.start_metric).items():
                if abs(by_seed.setdefault(seed, value) - value) > SAME:
                    return {}
        if by_seed:
            found[column.name] = over_seeds(list(by_seed.values()))
    return found


def one_set(rows: Sequence[SetRow], metric: str) -> Table:
    """Trained and before; with one baseline its name stands in the head, with several beside each Δ."""
    baselines = list(dict.fromkeys(row.against for row in rows if row.against is not None))
    delta = ["Δ", "to"] if len(baselines) > 1 else [f"Δ to {label}" for label in baselines]
    head = ["arm", "seeds", "trained", "before", *delta, "runs"]
    cells = []
    for row in rows:
        ids = " ".join(run_id[:ID_LENGTH] for run_id in row.run_ids)
        gain = [three_decimals(row.delta), row.against or ""][: len(delta)]
        cells.append([row.label, str(row.final.n), three_decimals(row.final), three_decimals(row.start), *gain, ids])
    left = [place for place, heading in enumerate(head) if heading in ("arm", "to", "runs")]
    return Table(head=head, rows=cells, title=metric, caption=CAPTION, left=left, unfolded=(head.index("trained"),))


def three_decimals(estimate: SeedEstimate | None) -> str:
    """``0.412 ± 0.031``; of a difference also how it was taken."""
    if estimate is None:
        return ""
    text = estimate.text(".3f")
    return f"{text} ({estimate.method})" if isinstance(estimate, Difference) and "±" in text else text

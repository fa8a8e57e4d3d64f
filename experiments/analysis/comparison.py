"""What is compared: the finished runs of some experiments as arms, over the evaluation sets they were tested on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.analysis.arms import Arm, arms_by, shareable, telling_axes, without_common
from experiments.analysis.baselines import Against, compared_with, in_order
from experiments.analysis.evaluation_sets import Column, columns_of, published_beside, published_metric
from experiments.analysis.fixed import BY_ARM, NOTHING, Fixed
from experiments.analysis.set_table import SetTable, set_table
from experiments.analysis.table import Row
from experiments.analysis.wishes import checked_axes, finished_runs
from experiments.study.plan import START
from experiments.track import Tracker
from experiments.tracking.tracked_run import TrackedRun

METRIC, GREEDY = "test/verifier/accuracy_sampled", "test/verifier/accuracy"
CURVE = "val/verifier/accuracy_sampled"
PERCENT = 100.0


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Arms side by side."""

    metric: str
    columns: Sequence[Column]
    arms: Sequence[Arm]
    """Each that is compared with none, below it those that are compared with it."""
    against: Against
    table: SetTable
    left_out: Sequence[TrackedRun]
    """Finished runs of these names that count and have the metric of none of the columns."""
    fixed: Fixed

    @property
    def rows(self) -> dict[str, list[Row]]:
        """Of each column's metric, a row for each arm that has it."""
        return {column.metric: list(self.table.rows[column.name].values()) for column in self.columns}

    @property
    def published(self) -> dict[str, dict[str, float]]:
        """The figures of papers by metric and label, as shares."""
        return {
            column.metric: {
                label: row.figures[column.name] / PERCENT
                for label, row in self.table.published.items()
                if column.name in row.figures
            }
            for column in self.columns
        }

    @property
    def is_simple(self) -> bool:
        """Whether one column without published figures says it all."""
        return len(self.columns) == 1 and not self.table.published


def comparison_of(
    tracker: Tracker,
    names: Sequence[str],
    *,
    metric: str | None,
    sets: Sequence[str] | None,
    by: Sequence[str] | None,
    baseline: str | None,
    fixed: Fixed = NOTHING,
) -> Comparison:
    """Read a comparison from MLflow.

    Args:
        tracker: where the runs are.
        names: of experiments.
        metric: by its name for the main set; None: see :func:`default_metric`.
        sets: the columns; None: all that the runs hold.
        by: tags and parameters that make an arm; None: as many as keep unlike runs apart.
        baseline: an arm's label, or a value that only one arm has; None: see :func:`compared_with`.
        fixed: what a study says where nothing else is wished for, and which runs count.

    Raises:
        Refused: for names, metrics, sets, axes or a baseline that do not exist.
    """
    finished = [run for run in finished_runs(tracker, names) if fixed.counts(run)]
    if fixed.primary is not None:
        metric, by = metric or fixed.primary.metric, by or BY_ARM
        baseline = baseline or (fixed.primary.baseline if "arm" in by else None)
    wanted = metric or default_metric(finished)
    published = published_beside(finished, wanted)
    columns = columns_of(finished, wanted, sets, published)
    runs = [run for run in finished if any(column.metric in run.metrics for column in columns)]
    left_out = [run for run in finished if run not in runs and run.tags.get("arm") != START]
    arms = without_common(arms_by(runs, telling_axes(runs))) if by is None else arms_by(runs, checked_axes(by, runs))
    compared = compared_with(arms, baseline)
    places = in_order(compared)
    ordered = shareable([arms[place] for place in places])
    shown = dict(zip(places, ordered, strict=True))
    against = {shown[place].label: shown[other] for place, other in enumerate(compared) if other is not None}
    table = set_table(ordered, columns, metric=wanted, against=against, published=published, rule=fixed.difference)
    return Comparison(
        metric=wanted, columns=columns, arms=ordered, against=against, table=table, left_out=left_out, fixed=fixed
    )


def default_metric(runs: Sequence[TrackedRun]) -> str:
    """What the published figures are of that the runs' suite names, so that they stand beside.

    Else success of sampled completions, and of greedy ones where no run was tested on samples.
    """
    held = {name for run in runs for name in run.metrics}
    printed = published_metric(runs)
    if printed is not None and any(is_of(name, printed) for name in held):
        return printed
    sampled, greedy = (any(is_of(name, metric) for name in held) for metric in (METRIC, GREEDY))
    return GREEDY if greedy and not sampled else METRIC


def is_of(name: str, metric: str) -> bool:
    """Whether a metric is ``metric`` of some evaluation set."""
    return name.startswith("test/") and name.endswith(metric.removeprefix("test"))

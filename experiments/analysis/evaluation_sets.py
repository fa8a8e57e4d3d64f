"""Evaluation sets as the columns of a comparison, and the published figures for them.

``test/verifier/accuracy`` is the metric of the suite's main set, ``test/gsm8k/verifier/accuracy`` that of the set
gsm8k. ``test/average/m_avg`` is an average over sets of the quantity that the suite's ``quantity`` names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from contrastive_reasoning.published import PublishedArm, PublishedTable, published_names, published_table, same_model
from experiments.analysis.runs import ABSENT, ArmRuns, Refused, value_of
from experiments.config.hints import did_you_mean
from experiments.mlflow_sync import TrackedRun

TEST, START = "test/", "start/"
AVERAGE = f"{TEST}average/"
MAIN = "main"
"""The main set: the names of its metrics contain no set name."""
SAMPLED, GREEDY = "test/verifier/accuracy_sampled", "test/verifier/accuracy"


@dataclass(frozen=True, kw_only=True)
class Column:
    """One set, or an average over sets."""

    name: str
    heading: str
    """The paper's heading; else the set's name, or for ``main`` that of the test problems if all runs share it."""
    metric: str

    @property
    def start_metric(self) -> str:
        """The metric of the same quantity before training; empty if ``metric`` is not a test metric."""
        return START + self.metric.removeprefix(TEST) if self.metric.startswith(TEST) else ""


def columns_of(
    runs: Sequence[TrackedRun], metric: str, sets: Sequence[str] | None, published: PublishedTable | None
) -> list[Column]:
    """The columns of ``metric``: those of ``sets`` in their order, else all that the runs have, averages last.

    ``metric`` is the name for the main set, such as ``test/verifier/accuracy``. A metric that is not a test metric is
    the only column. A published table gives order and headings.

    Raises:
        Refused: if no run has the metric in any set, or in one of ``sets``.
    """
    found = _metrics_by_set(runs, metric)
    if not found:
        known = sorted({name for run in runs for name in run.metrics})
        raise Refused(f"No finished run has the metric {metric!r}; {did_you_mean(metric, known)}")
    for name in sets or ():
        if name not in found:
            raise Refused(f"No finished run has {metric} of a set {name!r}; {did_you_mean(name, found, names=found)}")
    headings = dict(published.columns) if published else {}
    problems = {run.tags.get("problems", MAIN) for run in runs}

    def place(name: str) -> tuple[bool, bool, int, str]:
        order = list(headings).index(name) if name in headings else len(headings)
        return name != MAIN, found[name].startswith(AVERAGE), order, name

    names = sorted(found, key=place) if sets is None else sets
    if len(problems) == 1:
        headings.setdefault(MAIN, problems.pop())
    return [Column(name=name, heading=headings.get(name, name), metric=found[name]) for name in names]


def default_metric(runs: Sequence[TrackedRun]) -> str:
    """The metric of the published figures for the runs' suite, if a run has it, so that the two can be compared.

    Else success of sampled completions, or of greedy ones if only they were tested.
    """
    _, printed = _published_of(runs)
    if printed is not None and has_metric(runs, printed):
        return printed
    return GREEDY if has_metric(runs, GREEDY) and not has_metric(runs, SAMPLED) else SAMPLED


def has_metric(runs: Sequence[TrackedRun], metric: str) -> bool:
    """Whether any run has ``metric`` for any evaluation set."""
    ending = metric.removeprefix("test")
    return any(name.startswith(TEST) and name.endswith(ending) for run in runs for name in run.metrics)


def published_beside(runs: Sequence[TrackedRun], metric: str) -> PublishedTable | None:
    """The published table of all these runs' suite; None if there is no common table, or if it has another metric."""
    name, printed = _published_of(runs)
    return published_table(name) if printed == metric else None


def published_arm(arm: ArmRuns, table: PublishedTable | None) -> PublishedArm | None:
    """The published row that all runs of ``arm`` reproduce in base model and settings; None if there is none.

    Of several rows it is the one with the most settings, the first on a tie.
    """
    trained = [row for row in table.arms if row.method != table.base] if table else []
    rows = [row for row in trained if all(_repeats(run, row) for run in arm.runs.values())]
    return max(rows, key=lambda row: len(row.settings), default=None)


def _repeats(run: TrackedRun, row: PublishedArm) -> bool:
    return same_model(value_of(run, "policy.pretrained"), row.model) and all(
        _equal(value_of(run, key), value) for key, value in row.settings.items()
    )


def _equal(ours: str, printed: str | float) -> bool:
    """Compares numbers by value; a number that the run lacks, such as an absent temperature, counts as equal."""
    if isinstance(printed, str):
        return ours == printed
    try:
        return ours == ABSENT or float(ours) == printed
    except ValueError:
        return False


def _published_of(runs: Sequence[TrackedRun]) -> tuple[str, str | None]:
    """The published table of all these runs' suite, and its metric; ``("", None)`` if there is no common table."""
    quantity = GREEDY.removeprefix(TEST)
    named = {(run.params.get("suite.published", ""), run.params.get("suite.quantity", quantity)) for run in runs}
    name, quantity = named.pop()
    return (name, TEST + quantity) if not named and name in published_names() else ("", None)


def _metrics_by_set(runs: Sequence[TrackedRun], metric: str) -> dict[str, str]:
    """Set or average → the name of its metric in MLflow."""
    names = sorted({name for run in runs for name in run.metrics})
    found = {MAIN: metric} if metric in names else {}
    quantity = metric.removeprefix(TEST)
    if quantity == metric or "/" not in quantity:
        return found
    for name in filter(lambda name: name.startswith(TEST), names):
        head, _, rest = name.removeprefix(TEST).partition("/")
        if rest == quantity:
            found[head] = name
        averaged = {run.params.get("suite.quantity") for run in runs if name in run.metrics}
        if name.startswith(AVERAGE) and averaged == {quantity}:
            found[rest] = name
    return found

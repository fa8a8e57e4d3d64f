"""The evaluation sets that runs were tested on, as the columns of a comparison.

``test/verifier/accuracy`` is of the suite's main set, ``test/gsm8k/verifier/accuracy`` of the set gsm8k, and
``test/average/m_avg`` an average over sets of the quantity that the suite's ``quantity`` names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from contrastive_reasoning.published import PublishedTable, published_names, published_table
from experiments.analysis.wishes import Refused, near
from experiments.tracking.tracked_run import TrackedRun

TEST, AVERAGE = "test/", "average"
MAIN = "main"
"""The set whose metrics have plain names."""
QUANTITY, PUBLISHED = "suite.quantity", "suite.published"
GREEDY = "verifier/accuracy"
"""What a suite's table is of where it says nothing else."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """One set, or an average over sets."""

    name: str
    heading: str
    """As the paper heads it, else the name."""
    metric: str


def columns_of(
    runs: Sequence[TrackedRun], metric: str, wish: Sequence[str] | None, published: PublishedTable | None
) -> list[Column]:
    """The columns of ``metric``: those wished for in their order, else all that the runs hold, averages last.

    Args:
        runs: at least one.
        metric: by its name for the main set, as ``test/verifier/accuracy``; one of no test has itself for a column.
        wish: names of sets or averages; ``main`` is the main set.
        published: gives the order and the headings.

    Raises:
        Refused: where no run has the metric in any set, or in one that is wished for.
    """
    found = _metrics_by_set(runs, metric)
    if not found:
        known = sorted({name for run in runs for name in run.metrics})
        raise Refused(f"No finished run has the metric {metric!r}{near(metric, known)}")
    headings = dict(published.columns) if published else {}
    for name in wish or ():
        if name not in found:
            raise Refused(f"No finished run has {metric} of a set {name!r}{near(name, list(found))}")
    names = sorted(found, key=lambda name: _place(name, list(headings), found)) if wish is None else list(wish)
    return [Column(name=name, heading=headings.get(name, name), metric=found[name]) for name in names]


def published_beside(runs: Sequence[TrackedRun], metric: str) -> PublishedTable | None:
    """The table that the suite of all these runs names, of its quantity; None where they name none, or several."""
    named = _named(runs)
    return published_table(named[0]) if named and f"{TEST}{named[1]}" == metric else None


def published_metric(runs: Sequence[TrackedRun]) -> str | None:
    """What the table is of that the suite of all these runs names; None where they name none, or several."""
    named = _named(runs)
    return f"{TEST}{named[1]}" if named else None


def _named(runs: Sequence[TrackedRun]) -> tuple[str, str] | None:
    """The table of all these runs and its quantity."""
    named = {(run.params.get(PUBLISHED, "null"), run.params.get(QUANTITY, GREEDY)) for run in runs}
    name, quantity = named.pop()
    return None if named or name not in published_names() else (name, quantity)


def _metrics_by_set(runs: Sequence[TrackedRun], metric: str) -> dict[str, str]:
    names = sorted({name for run in runs for name in run.metrics})
    found = {MAIN: metric} if metric in names else {}
    quantity = metric.removeprefix(TEST)
    if quantity == metric or "/" not in quantity:
        return found
    for name in names:
        head, _, rest = name.removeprefix(TEST).partition("/")
        if name.startswith(TEST) and rest == quantity:
            found[head] = name
        if name.startswith(TEST) and head == AVERAGE and _averages(runs, name) == {quantity}:
            found[rest] = name
    return found


def _averages(runs: Sequence[TrackedRun], metric: str) -> set[str | None]:
    """What an average was taken of."""
    return {run.params.get(QUANTITY) for run in runs if metric in run.metrics}


def _place(name: str, headings: Sequence[str], found: Mapping[str, str]) -> tuple[bool, bool, int, str]:
    """Main first, sets as the paper has them, others by name, averages last."""
    is_average = found[name].startswith(f"{TEST}{AVERAGE}/")
    order = headings.index(name) if name in headings else len(headings)
    return (name != MAIN, is_average, order, name)

"""The tables, arms × evaluation sets, of sampled and of greedy completions; and what each arm gained."""

from __future__ import annotations

from collections.abc import Iterator

from experiments.analysis.baselines import note_on_baselines
from experiments.analysis.comparison import GREEDY, METRIC, is_of
from experiments.analysis.evaluation_sets import columns_of, published_beside
from experiments.analysis.gains import compared_to, draw_gains
from experiments.analysis.set_table import SetTable, head, lines, set_table
from experiments.compare import note_on_left_out, notes
from experiments.report.gathered import Gathered
from experiments.report.markup import Html, element, joined, section, table
from experiments.report.svg import as_svg, quiet


def results(found: Gathered) -> Html:
    """The section; below the tables stands what they would hide."""
    written = joined(_written(one) for one in _tables(found))
    return section(
        "Results",
        written,
        _gains(found),
        *(element("p", line, class_="note") for line in _notes(found)),
    )


def _notes(found: Gathered) -> list[str]:
    on_baselines = note_on_baselines(found.arms, found.comparison.against)
    fixed = found.comparison.fixed
    arms = notes(found.arms, starts_may_differ=fixed.starts_may_differ)
    return [*fixed.notes, *arms, *note_on_left_out(found.comparison), *on_baselines]


def _gains(found: Gathered) -> Html:
    """The comparison's bars, where there is a baseline."""
    with quiet():
        figure = draw_gains(found.comparison.table)
        said = f"What each arm gained over {compared_to(found.comparison.table)}: {found.comparison.metric}"
        return Html("") if figure is None else element("div", as_svg(figure, said=said), class_="wide")


def _tables(found: Gathered) -> Iterator[SetTable]:
    """That of the comparison; for success of one kind also that of the other, where the runs have it."""
    yield found.comparison.table
    other = {METRIC: GREEDY, GREEDY: METRIC}.get(found.comparison.metric)
    if other is not None and any(is_of(name, other) for run in found.runs for name in run.metrics):
        published = published_beside(found.runs, other)
        columns = columns_of(found.runs, other, None, published)
        against = found.comparison.against
        rule = found.comparison.fixed.difference
        yield set_table(found.arms, columns, metric=other, against=against, published=published, rule=rule)


def _written(found: SetTable) -> Html:
    rows = [
        [line.label if line.is_arm else element("span", line.label, class_="under"), line.seeds, *line.cells]
        for line in lines(found)
    ]
    return joined([table(head(found), rows), element("p", found.caption, class_="note")])

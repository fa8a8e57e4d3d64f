"""What a study asked and what came out, by the metric, the arm and the baseline that were fixed before its runs."""

from __future__ import annotations

from collections.abc import Iterator

from experiments.report.markup import Html, element, section
from experiments.study.finished import today
from experiments.study.launched import notes_on_primary
from experiments.study.plan import Study, StudyError
from experiments.study.results import read_results
from experiments.study.rows import rows_of
from experiments.study.verdict import verdict
from experiments.track import Tracker


def about(tracker: Tracker, study: Study) -> Html:
    """The section at the top of a study's page."""
    told = [element("p", _verdict(tracker, study))]
    told += [element("p", note, class_="note") for note in notes_on_primary(tracker, study)]
    return section("Study", element("p", study.question), *told, *_arms(study))


def _verdict(tracker: Tracker, study: Study) -> str:
    """The primary comparison in a few sentences, or why there is none yet."""
    try:
        arms = read_results(tracker, study, *today(tracker, study))
        return verdict(study, rows_of(arms, study.primary.metric, start_per_seed=study.start_per_seed))
    except StudyError as error:
        return str(error)


def _arms(study: Study) -> Iterator[Html]:
    lines = [element("li", f"{arm.name}: {arm.about}") for arm in study.arms.values()]
    yield element("details", element("summary", "Its arms"), element("ul", *lines), class_="note")

"""Write the report of finished runs, from what MLflow holds of them alone.

    python -m experiments.report NAME [NAME …] [metric=test/verifier/accuracy_sampled] [sets=main,larger]
                                 [by=experiment,reward] [baseline=NAME] [curve=val/…] [output=outputs/report/NAME.html]

One HTML file that fetches nothing. Of a study it shows the runs that count for it, with its question and its verdict.
The words are those of ``python -m experiments.compare``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.analysis.comparison import comparison_of
from experiments.analysis.wishes import Refused, near
from experiments.analysis.words import comparison_parser, wishes
from experiments.compare import fixed_of
from experiments.config.folders import ConfigDirError, take_config_dir
from experiments.report.charts import charts
from experiments.report.commands import commands
from experiments.report.comparisons import comparisons
from experiments.report.completions import completions
from experiments.report.environment import environment
from experiments.report.figures import figures
from experiments.report.gathered import Gathered, gather
from experiments.report.markup import Html, joined
from experiments.report.page import page
from experiments.report.question import question
from experiments.report.results import results
from experiments.report.settings import settings
from experiments.study.launched import launched
from experiments.study.named import split
from experiments.study.plan import Study, StudyError
from experiments.system.files import join_names as joined_names
from experiments.system.files import name_flaw, quoted, write_text
from experiments.track import Tracker, TrackerError, connect

OUTPUT = Path("outputs") / "report"
NO_STUDY = Html("")


def report(found: Gathered, *, curve: str | None, of_study: Html = NO_STUDY) -> str:
    """The page.

    Args:
        found: the runs.
        curve: the metric of the large picture; None: success in validation.
        of_study: what the study of these runs asked, where they are those of one.
    """
    sections = [
        of_study,
        question(found),
        results(found),
        charts(found, curve),
        comparisons(found),
        figures(found),
        completions(found),
        settings(found),
        commands(found),
        environment(found),
    ]
    return page(", ".join(found.names), sections)


def check_curve(found: Gathered, curve: str | None) -> None:
    """Refuse the wish for a curve that no stage logged."""
    logged = {name for stages in found.stages.values() for stage in stages.values() for name in stage.metrics}
    if curve is not None and curve not in logged:
        raise Refused(f"No stage of these runs has the metric {curve!r}{near(curve, sorted(logged))}")


def main(arguments: Sequence[str]) -> int:
    """Flags may be written as overrides: ``metric=x`` is ``--metric=x``."""
    parser = comparison_parser("experiments.report", __doc__)
    parser.add_argument("--output", type=Path, help="the file; outputs/report/NAME.html")
    try:
        options = parser.read(take_config_dir(arguments))
        names, studies = split(options.names)
        output = options.output or default_output(names)
        tracker = connect()
        studies = studies or launched(tracker, names)
        fixed = fixed_of(tracker, studies, alone=len(names) == 1)
        found = gather(tracker, names, comparison_of(tracker, names, **wishes(options), fixed=fixed))
        check_curve(found, options.curve)
        write_text(output, report(found, curve=options.curve, of_study=of_studies(tracker, studies)))
    except (ConfigDirError, Refused, StudyError, TrackerError) as error:
        print(error, file=sys.stderr)
        return 2
    print(f"Written: {output} ({output.stat().st_size / 1e6:.1f} MB)")
    return 0


def of_studies(tracker: Tracker, studies: Sequence[Study]) -> Html:
    """What each asked and what came out."""
    if not studies:
        return NO_STUDY
    from experiments.report.study import about  # slow to import: it composes configurations

    return joined([about(tracker, study) for study in studies])


def default_output(names: Sequence[str]) -> Path:
    """``outputs/report/NAME+NAME.html``, shortened where there are many."""
    for name in names:
        if wrong := name_flaw(name):
            raise Refused(f"{quoted(name)} {wrong}: a report is written under its names; or give output=FILE")
    return OUTPUT / f"{joined_names(names)}.html"

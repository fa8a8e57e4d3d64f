"""Write the report of finished runs, from what MLflow holds of them alone.

    python -m experiments.report NAME [NAME …] [metric=test/verifier/accuracy_sampled] [sets=main,larger]
                                 [by=experiment,reward] [baseline=NAME] [curve=val/…] [output=outputs/report/NAME.html]

One HTML file that fetches nothing. The words are those of ``python -m experiments.compare``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.comparison.comparison import comparison_of
from experiments.comparison.wishes import Refused, near
from experiments.comparison.words import comparison_parser, wishes
from experiments.machine.files import write_text
from experiments.machine.folder_names import flaw, joined, shown
from experiments.report.charts import charts
from experiments.report.commands import commands
from experiments.report.comparisons import comparisons
from experiments.report.completions import completions
from experiments.report.environment import environment
from experiments.report.figures import figures
from experiments.report.gathered import Gathered, gather
from experiments.report.page import page
from experiments.report.question import question
from experiments.report.results import results
from experiments.report.settings import settings
from experiments.track import TrackerError, connect

OUTPUT = Path("outputs") / "report"


def report(found: Gathered, *, curve: str | None) -> str:
    """The page.

    Args:
        found: the runs.
        curve: the metric of the large picture; None: success in validation.
    """
    sections = [
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
    options = parser.read(arguments)
    try:
        output = options.output or default_output(options.names)
        tracker = connect()
        comparison = comparison_of(tracker, options.names, **wishes(options))
        found = gather(tracker, options.names, comparison)
        check_curve(found, options.curve)
        write_text(output, report(found, curve=options.curve))
    except (Refused, TrackerError) as error:
        print(error, file=sys.stderr)
        return 2
    print(f"Written: {output} ({output.stat().st_size / 1e6:.1f} MB)")
    return 0


def default_output(names: Sequence[str]) -> Path:
    """``outputs/report/NAME+NAME.html``, shortened where there are many."""
    for name in names:
        if wrong := flaw(name):
            raise Refused(f"{shown(name)} {wrong}: a report is written under its names; or give output=FILE")
    return OUTPUT / f"{joined(names)}.html"

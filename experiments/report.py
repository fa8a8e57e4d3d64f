"""Write the report of finished runs from their data in MLflow.

    python -m experiments.report NAME [NAME …] [metric=test/verifier/accuracy_sampled] [sets=main,larger]
                                 [by=experiment,reward] [baseline=NAME] [curve=val/…] [output=outputs/report/NAME.html]

The report is one HTML file that loads nothing from elsewhere. For a study it shows the runs that count, the question
and the verdict. The arguments are those of ``python -m experiments.compare``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.analysis.comparison import comparison_of, preregistration
from experiments.analysis.report.gather import gather
from experiments.analysis.report.page import page, result_of
from experiments.analysis.runs import Refused
from experiments.cli.commands import COMMANDS
from experiments.compare import request_of
from experiments.config.folders import ConfigDirError, take_config_dir
from experiments.config.hints import did_you_mean
from experiments.jobs.study_plan import StudyError, split, with_launched
from experiments.mlflow_sync import TrackerError, connect
from experiments.system.files import join_names, name_flaw, quote_name, write_text
from experiments.system.terminal import be_quiet, protect_output

OUTPUT = Path("outputs") / "report"


def main(arguments: Sequence[str]) -> int:
    """Options may be written as overrides: ``metric=x`` is ``--metric=x``."""
    try:
        options = COMMANDS["report"].read(take_config_dir(arguments))
        names, studies = split(options.names)
        for name in names if options.output is None else ():
            if wrong := name_flaw(name):
                raise Refused(f"{quote_name(name)} {wrong}: a report is written under its names; or give output=FILE")
        output = options.output or OUTPUT / f"{join_names(names)}.html"
        tracker = connect()
        studies = with_launched(tracker, studies, names)
        fixed = preregistration(tracker, studies, alone=len(names) == 1)
        found = gather(tracker, comparison_of(tracker, request_of(options, names), fixed))
        logged = {name for stages in found.stages.values() for stage in stages.values() for name in stage.metrics}
        if options.curve not in (None, *logged):
            raise Refused(f"No stage of these runs has {options.curve!r}; {did_you_mean(options.curve, logged)}")
        results = [result_of(tracker, study) for study in studies]
        write_text(output, page(found, curve=options.curve, studies=results))
    except (ConfigDirError, Refused, StudyError, TrackerError) as error:
        print(error, file=sys.stderr)
        return 2
    print(f"Written: {output} ({output.stat().st_size / 1e6:.1f} MB)")
    return 0


if __name__ == "__main__":
    be_quiet()
    protect_output()
    sys.exit(main(sys.argv[1:]))

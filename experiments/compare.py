"""Compare the finished runs of experiments in MLflow: a table over seeds, and success over training steps.

    python -m experiments.compare NAME [NAME …] [metric=test/verifier/accuracy_sampled] [sets=main,larger]
                                  [by=experiment,reward] [baseline=NAME] [curve=val/verifier/accuracy_sampled]

    python -m experiments.compare STUDY            the report of a study in ``conf/study/``, or of a study's file;
                                                   with an option: compares the runs that count for the study

Only finished runs count, and only the newest of each arm and seed. Without ``by``, runs that differ in more than the
seed are separate arms. If the runs were tested on several evaluation sets, the sets are the columns. A paper's figures
for the same method and model are shown below ours. CSV, Markdown, LaTeX and pictures are written to
``outputs/compare/`` and to MLflow: the curves, the gain of each arm, and a heat map if arms differ in two or more axes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.analysis.comparison import (
    CURVE,
    NOTHING_FIXED,
    Preregistration,
    Request,
    comparison_of,
    preregistration,
)
from experiments.analysis.evaluation_sets import SAMPLED
from experiments.analysis.figures import Curve, Point, draw_curves, draw_gains, draw_heat_map
from experiments.analysis.runs import Refused, log_comparison, stages_below, stages_with
from experiments.cli.commands import COMMANDS
from experiments.config.folders import ConfigDirError, take_config_dir
from experiments.jobs.study_plan import StudyError, split, with_launched
from experiments.mlflow_sync import Tracker, TrackerError, connect
from experiments.system.files import join_names, name_flaw, quote_name, write_text
from experiments.system.terminal import protect_output

OUTPUT = Path("outputs") / "compare"


def compare(tracker: Tracker, request: Request, *, output: Path, fixed: Preregistration = NOTHING_FIXED) -> list[str]:
    """Writes a comparison to a folder below ``output``, logs it and prints its table; returns notes on it.

    Raises:
        Refused: if a name, metric, set, axis or baseline does not exist.
    """
    for name in (*request.names, (request.metric or SAMPLED).replace("/", "-")):
        if wrong := name_flaw(name):
            raise Refused(f"{quote_name(name)} {wrong}: a comparison is written under its names")
    found = comparison_of(tracker, request, fixed)
    metric, table = found.table.metric, found.table.as_table()
    stem = output / join_names(request.names) / metric.replace("/", "-")
    texts = {
        ".csv": found.table.as_csv(),
        ".md": table.as_markdown(),
        ".tex": found.table.as_table(run_ids=False).as_latex(),
    }
    files = [stem.with_name(stem.name + ending) for ending in texts]  # the name of a metric may have a dot
    for path, text in zip(files, texts.values(), strict=True):
        write_text(path, text)
    curve = request.curve or (metric if metric.startswith("val/") else CURVE)
    below, curves = stages_below(tracker, request.names), list[Curve]()
    for arm in found.table.arms:
        seeds = [dict(tracker.history(stage.run_id, curve)) for stage in stages_with(curve, arm, below)]
        curves += [Curve(label=arm.label, seeds=seeds)] if seeds else []
    steps = "training steps (GRPO: rollout batches)"
    reached = [(arm.values, [*arm.metric(metric).values()]) for arm in found.table.arms]
    points = [Point(values=values, seeds=seeds) for values, seeds in reached if seeds]
    pictures = {
        ".png": draw_curves(curves, metric=curve, steps=steps) if curves else None,
        "-gains.png": draw_gains(found.table),
        "-heat-map.png": draw_heat_map(points, metric=metric),
    }
    for ending, figure in pictures.items():
        if figure is not None:
            files.append(stem.with_name(stem.name + ending))
            figure.savefig(files[-1], dpi=160)
    log_comparison(tracker, request.names[0], files)
    table.show()
    without = [] if curves else [f"No stage logged {curve}: no picture."]
    return [*found.notes, *without, f"Written: {stem}.*"]


def request_of(options: argparse.Namespace, names: Sequence[str]) -> Request:
    """Builds the request from parsed arguments and the names of the experiments."""
    given = {name: getattr(options, name) for name in ("metric", "sets", "by", "baseline", "curve")}
    return Request(names=names, **given)


def main(arguments: Sequence[str]) -> int:
    """Options may be written as overrides: ``metric=x`` is ``--metric=x``."""
    try:
        options = COMMANDS["compare"].read(take_config_dir(arguments))
        names, studies = split(options.names)
        request = request_of(options, names)
        tracker = connect()
        studies = with_launched(tracker, studies, names)
        if studies and request == Request(names=names) and len(names) == 1:
            from experiments.analysis.study_report import report_today  # a slow import: it composes configurations

            lines = report_today(tracker, studies[0], output=OUTPUT)
        else:
            fixed = preregistration(tracker, studies, alone=len(names) == 1)
            lines = compare(tracker, request, output=OUTPUT, fixed=fixed)
    except (ConfigDirError, Refused, StudyError, TrackerError) as error:
        print(error, file=sys.stderr)
        return 2
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    protect_output()
    sys.exit(main(sys.argv[1:]))

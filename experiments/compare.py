"""Compare experiments by what MLflow holds of them: a table over seeds, and success over training steps.

    python -m experiments.compare NAME [NAME …] [metric=test/verifier/accuracy_sampled] [sets=main,larger]
                                  [by=experiment,reward] [baseline=NAME] [curve=val/verifier/accuracy_sampled]

    python -m experiments.compare STUDY            the report of a study, of ``conf/study/`` or the path of a file;
                                                   with a flag, the above of the runs that count for it

Only finished runs count, of each arm and seed the newest. Without ``by`` runs that differ in anything but the seed are
kept apart. Where they were tested on several evaluation sets, these are the columns, and figures that a paper printed
for the same method and model stand under ours. CSV, Markdown, LaTeX and two pictures, the curves and what each arm
gained, go to ``outputs/compare/`` and to MLflow.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

from rich.console import Console
from rich.table import Table

from experiments.analysis import set_table_forms
from experiments.analysis.arms import Arm, is_begun_from, mixed
from experiments.analysis.baselines import note_on_baselines
from experiments.analysis.comparison import CURVE, METRIC, Comparison, comparison_of
from experiments.analysis.curves import Curve, draw_curves
from experiments.analysis.fixed import NOTHING, Fixed
from experiments.analysis.gains import draw_gains
from experiments.analysis.table import as_csv, as_latex, as_markdown, as_rich
from experiments.analysis.wishes import Refused
from experiments.analysis.words import Wishes, comparison_parser, wishes
from experiments.config.folders import ConfigDirError, take_config_dir
from experiments.study.launched import launched
from experiments.study.named import split
from experiments.study.plan import Study, StudyError
from experiments.system.files import join_names, name_flaw, quoted, write_text
from experiments.system.terminal import protect_output
from experiments.track import Tracker, TrackerError, connect
from experiments.tracking.tracked_run import TrackedRun

OUTPUT = Path("outputs") / "compare"
MOST_NOTED = 5
WIDE = 200
"""Columns of a terminal that is none: nothing is folded in a file."""
STAGES_WITH_CURVES = ("grpo", "critic", "warm_start")


def compare(
    tracker: Tracker,
    names: Sequence[str],
    *,
    curve: str,
    output: Path,
    fixed: Fixed = NOTHING,
    **wished: Unpack[Wishes],
) -> list[str]:
    """Write the comparison into ``output``, log it, print its table; returns what a reader should know beside it.

    Args:
        tracker: where the runs are.
        names: of experiments.
        curve: the metric of the large picture.
        output: the folder of all comparisons.
        fixed: what a study says, of those that are named.
        wished: the rest of :func:`comparison_of`'s arguments.

    Raises:
        Refused: for names, metrics, sets, axes or a baseline that do not exist.
    """
    for name in (*names, (wished["metric"] or METRIC).replace("/", "-")):
        if wrong := name_flaw(name):
            raise Refused(f"{quoted(name)} {wrong}: a comparison is written under its names")
    found = comparison_of(tracker, names, **wished, fixed=fixed)
    stem = output / join_names(names) / found.metric.replace("/", "-")
    files = write_tables(found, stem)
    curves = read_curves(tracker, names, found.arms, curve)
    if curves:
        files.append(stem.with_suffix(".png"))
        draw_curves(curves, metric=curve, steps="training steps (GRPO: rollout batches)").savefig(files[-1], dpi=160)
    if (gains := draw_gains(found.table)) is not None:
        files.append(stem.with_name(f"{stem.name}-gains.png"))
        gains.savefig(files[-1], dpi=160)
    log_comparison(tracker, names[0], files)
    console = Console()
    if not console.is_terminal:
        console.width = WIDE
    console.print(terminal_table(found))
    return [
        *fixed.notes,
        *notes(found.arms, starts_may_differ=fixed.starts_may_differ),
        *note_on_left_out(found),
        *note_on_baselines(found.arms, found.against),
        *([] if curves else [f"No stage logged {curve}: no picture."]),
        f"Written: {stem}.*",
    ]


def write_tables(found: Comparison, stem: Path) -> list[Path]:
    """CSV, Markdown and LaTeX; returns their paths."""
    (rows, *_), simple = found.rows.values(), found.is_simple
    texts = {
        ".csv": as_csv(found.rows, found.published),
        ".md": as_markdown(rows, found.metric) if simple else set_table_forms.as_markdown(found.table),
        ".tex": as_latex(rows, found.metric) if simple else set_table_forms.as_latex(found.table),
    }
    for suffix, text in texts.items():
        write_text(stem.with_suffix(suffix), text)
    return [stem.with_suffix(suffix) for suffix in texts]


def terminal_table(found: Comparison) -> Table:
    """One metric with all that is known of it, or the sets as columns."""
    if not found.is_simple:
        return set_table_forms.as_rich(found.table)
    (rows,) = found.rows.values()
    return as_rich(rows, found.metric)


def read_curves(tracker: Tracker, names: Sequence[str], arms: Sequence[Arm], metric: str) -> list[Curve]:
    """Per arm the histories of its runs, each from the stage that logged ``metric`` while it trained."""
    stage_of: dict[str, TrackedRun] = {}
    stages = [run for run in tracker.runs(names, kind="stage") if metric in run.metrics]
    for wanted in reversed(STAGES_WITH_CURVES):
        stage_of |= {run.tags["mlflow.parentRunId"]: run for run in stages if run.tags["stage"] == wanted}
    curves = []
    for arm in arms:
        found = [stage_of[run.run_id] for run in arm.runs.values() if run.run_id in stage_of]
        if found:
            histories = [dict(tracker.history(run.run_id, metric)) for run in found]
            curves.append(Curve(label=arm.label, seeds=histories))
    return curves


def log_comparison(tracker: Tracker, experiment: str, files: Sequence[Path]) -> None:
    """The files as a run of their own, one for each comparison however often it is made."""
    key = f"compare/{files[0].parent.name}/{files[0].stem}"
    found = tracker.find_run(experiment, key)
    if found is not None and found.deleted:
        return  # a person deleted it
    run_id = found.run_id if found else None
    if run_id is None:
        tags = {"key": key, "kind": "comparison", "experiment": experiment}
        run_id = tracker.create_run(experiment, name=key, start=time.time(), tags=tags, parent=None)
    for path in files:
        tracker.log_file(run_id, path, "")
    tracker.set_status(run_id, "FINISHED", end=time.time())


def notes(arms: Sequence[Arm], *, starts_may_differ: bool = False) -> list[str]:
    """What the table alone would hide.

    Args:
        arms: that are compared.
        starts_may_differ: the policies that an arm's runs begin from are meant to differ.
    """
    lines = []
    superseded = sum(len(arm.members) - len(arm.runs) for arm in arms)
    if superseded:
        lines.append(f"{superseded} older run(s) left out: a newer one of the same arm and seed counts.")
    for arm in arms:
        differing = [
            f"{axis} ({', '.join(values)})"
            for axis, values in mixed(arm).items()
            if not (starts_may_differ and is_begun_from(axis))
        ]
        more = f" and {len(differing) - MOST_NOTED} more" if len(differing) > MOST_NOTED else ""
        if differing:
            lines.append(f"{arm.label}: counts as one arm, but differs in {'; '.join(differing[:MOST_NOTED])}{more}.")
    return lines


def note_on_left_out(found: Comparison) -> list[str]:
    """Who was named and is in no table."""
    counted = Counter(run.tags.get("arm") or run.experiment for run in found.left_out)
    those = ", ".join(f"{name} ({number} {'run' if number == 1 else 'runs'})" for name, number in counted.items())
    return [f"Without {found.metric}, and so in no table: {those}."] if those else []


def is_plain(options: argparse.Namespace) -> bool:
    """Whether one name was said, and nothing else wished for."""
    return len(options.names) == 1 and not any(
        (options.metric, options.sets, options.by, options.baseline, options.curve)
    )


def fixed_of(tracker: Tracker, studies: Sequence[Study], *, alone: bool) -> Fixed:
    """What the studies that are named fix; what it takes to tell is imported where there are any.

    Raises:
        StudyError: for one of which no run counts today.
    """
    if not studies:
        return NOTHING
    from experiments.study.side_by_side import fixed_by

    return fixed_by(tracker, studies, alone=alone)


def main(arguments: Sequence[str]) -> int:
    """Flags may be written as overrides: ``metric=x`` is ``--metric=x``."""
    try:
        options = comparison_parser("experiments.compare", __doc__).read(take_config_dir(arguments))
        names, studies = split(options.names)
        tracker = connect()
        studies = studies or launched(tracker, names)
        if studies and is_plain(options):
            from experiments.study.report import main as report_on_study

            return report_on_study(studies[0])
        validated = options.metric if options.metric and options.metric.startswith("val/") else CURVE
        lines = compare(
            tracker,
            names,
            **wishes(options),
            curve=options.curve or validated,
            output=OUTPUT,
            fixed=fixed_of(tracker, studies, alone=len(names) == 1),
        )
    except (ConfigDirError, Refused, StudyError, TrackerError) as error:
        print(error, file=sys.stderr)
        return 2
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    protect_output()
    sys.exit(main(sys.argv[1:]))

"""Compare experiments by what MLflow holds of them: a table over seeds, and success over training steps.

    python -m experiments.compare NAME [NAME …] [metric=test/verifier/accuracy_sampled] [by=experiment,reward]
                                  [baseline=NAME] [curve=val/verifier/accuracy_sampled]

    python -m experiments.compare STUDY            the report of a study of ``conf/study/``; with a flag, the above

Only finished runs count, of each arm and seed the newest. Without ``by`` runs that differ in anything but the seed are
kept apart. CSV, LaTeX and the picture go to ``outputs/compare/`` and to MLflow.
"""

from __future__ import annotations

import argparse
import difflib
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from experiments.arms import Arm, arms_by, known_axes, mixed, telling_axes, value_of
from experiments.comparison_table import as_csv, as_latex, as_rich, rows_of
from experiments.curves import Curve, draw_curves
from experiments.files import write_text
from experiments.folder_names import flaw, shown
from experiments.study.plan import study_names
from experiments.track import RunRecord, Tracker, TrackerError, connect

METRIC, CURVE = "test/verifier/accuracy_sampled", "val/verifier/accuracy_sampled"
OUTPUT = Path("outputs") / "compare"
MOST_NOTED = 5
STAGES_WITH_CURVES = ("grpo", "critic", "warm_start")


class Refused(ValueError):
    """A wish that cannot be met, in one sentence."""


def compare(
    tracker: Tracker,
    names: Sequence[str],
    *,
    metric: str,
    by: Sequence[str] | None,
    baseline: str | None,
    curve: str,
    output: Path,
) -> list[str]:
    """Write the comparison into ``output``, log it, print its table; returns what a reader should know beside it.

    Raises:
        Refused: for names, metrics, axes or a baseline that do not exist.
    """
    for name in (*names, metric.replace("/", "-")):
        if wrong := flaw(name):
            raise Refused(f"{shown(name)} {wrong}: a comparison is written under its names")
    runs = having(finished_runs(tracker, names), metric)
    axes = telling_axes(runs) if by is None else checked_axes(by, runs)
    arms = arms_by(runs, axes)
    reference = find_baseline(arms, baseline)
    ordered = sorted(arms, key=lambda arm: arm is not reference)
    rows = rows_of(ordered, metric, reference)
    stem = output / "+".join(names) / metric.replace("/", "-")
    write_text(stem.with_suffix(".csv"), as_csv(rows, metric))
    write_text(stem.with_suffix(".tex"), as_latex(rows, metric, reference))
    files = [stem.with_suffix(".csv"), stem.with_suffix(".tex")]
    curves = read_curves(tracker, names, ordered, curve)
    if curves:
        files.append(stem.with_suffix(".png"))
        draw_curves(curves, metric=curve, steps="training steps (GRPO: rollout batches)").savefig(files[-1], dpi=160)
    log_comparison(tracker, names[0], files)
    Console().print(as_rich(rows, metric, reference))
    return [*notes(arms), *([] if curves else [f"No stage logged {curve}: no picture."]), f"Written: {stem}.*"]


def finished_runs(tracker: Tracker, names: Sequence[str]) -> list[RunRecord]:
    """The finished experiment runs of these names, oldest first."""
    known = tracker.experiments()
    for name in names:
        if name not in known:
            raise Refused(f"No experiment {name!r} in MLflow at {tracker.address}{_near(name, known)}")
    runs = tracker.runs(names, kind="experiment")
    finished = [run for run in runs if run.status == "FINISHED"]
    missing = [name for name in names if name not in {run.experiment for run in finished}]
    if missing:
        raise Refused(f"None of the runs of {', '.join(missing)} has finished: run `make exp name={missing[0]}` first")
    return finished


def having(runs: Sequence[RunRecord], metric: str) -> list[RunRecord]:
    """The runs that have ``metric``."""
    found = [run for run in runs if metric in run.metrics]
    if not found:
        known = sorted({name for run in runs for name in run.metrics})
        raise Refused(f"No finished run has the metric {metric!r}{_near(metric, known)}")
    return found


def checked_axes(by: Sequence[str], runs: Sequence[RunRecord]) -> list[str]:
    """``by`` itself, if the runs know these tags and parameters."""
    known = {axis for run in runs for axis in (*run.tags, *run.params)}
    for axis in by:
        if axis not in known:
            raise Refused(f"No run has a tag or parameter {axis!r} to group by{_near(axis, known_axes(runs))}")
    return list(by)


def find_baseline(arms: Sequence[Arm], wish: str | None) -> Arm | None:
    """The arm that others are compared with: the one wished for, else the one that is plainly a baseline, else none.

    That is the arm named ``…baseline``, or the only one rewarded by the verifier alone.
    """
    if wish is None:
        found = [arm for arm in arms if "baseline" in arm.label] or [arm for arm in arms if _plain(arm)]
        return found[0] if len(found) == 1 and len(arms) > 1 else None
    found = [arm for arm in arms if wish == arm.label or wish in arm.values.values()]
    if len(found) != 1:
        how = "is none of the arms" if not found else f"is {len(found)} of the arms"
        raise Refused(f"The baseline {wish!r} {how}; there are: {'; '.join(arm.label for arm in arms)}")
    return found[0]


def _plain(arm: Arm) -> bool:
    """Rewarded by the verifier alone."""
    return all(value_of(run, "reward") == "verifier" for run in arm.runs.values())


def read_curves(tracker: Tracker, names: Sequence[str], arms: Sequence[Arm], metric: str) -> list[Curve]:
    """Per arm the histories of its runs, each from the stage that logged ``metric`` while it trained."""
    stage_of: dict[str, RunRecord] = {}
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
    if found is not None and found[1]:
        return  # a person deleted it
    run_id = found[0] if found else None
    if run_id is None:
        tags = {"key": key, "kind": "comparison", "experiment": experiment}
        run_id = tracker.create_run(experiment, name=key, start=time.time(), tags=tags, parent=None)
    for path in files:
        tracker.log_file(run_id, path, "")
    tracker.set_status(run_id, "FINISHED", end=time.time())


def notes(arms: Sequence[Arm]) -> list[str]:
    """What the table alone would hide."""
    lines = []
    superseded = sum(len(arm.members) - len(arm.runs) for arm in arms)
    if superseded:
        lines.append(f"{superseded} older run(s) left out: a newer one of the same arm and seed counts.")
    for arm in arms:
        differing = [f"{axis} ({', '.join(values)})" for axis, values in mixed(arm).items()]
        more = f" and {len(differing) - MOST_NOTED} more" if len(differing) > MOST_NOTED else ""
        if differing:
            lines.append(f"{arm.label}: counts as one arm, but differs in {'; '.join(differing[:MOST_NOTED])}{more}.")
    return lines


def is_study(options: argparse.Namespace) -> bool:
    """Whether a study alone was named, and nothing else wished for."""
    wishes = options.by, options.baseline, options.curve
    plain = options.metric == METRIC and not any(wishes) and len(options.names) == 1
    return plain and options.names[0] in study_names()


def _near(wrong: str, known: Sequence[str]) -> str:
    """``; did you mean …? There are: …``"""
    if not known:
        return "; there are none yet"
    close = difflib.get_close_matches(wrong, known, n=1)
    return (f"; did you mean {close[0]}? There are: " if close else "; there are: ") + ", ".join(known)


def main(arguments: Sequence[str]) -> int:
    """Flags may be written as overrides: ``metric=x`` is ``--metric=x``."""
    parser = argparse.ArgumentParser(prog="python -m experiments.compare", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="+", help="experiments")
    parser.add_argument("--metric", default=METRIC)
    parser.add_argument("--by", help="tags or parameters that make an arm, with commas")
    parser.add_argument("--baseline", help="an arm, or a value that only one arm has")
    parser.add_argument("--curve", help="the metric of the picture")
    flags = [f"--{word}" if "=" in word and not word.startswith("-") else word for word in arguments]
    options = parser.parse_args(flags)
    if is_study(options):
        from experiments.study.report import main as report_on_study

        return report_on_study(options.names[0])
    by = None if options.by is None else [axis.strip() for axis in options.by.strip("[]").split(",")]
    curve = options.curve or (options.metric if options.metric.startswith("val/") else CURVE)
    try:
        lines = compare(
            connect(),
            options.names,
            metric=options.metric,
            by=by,
            baseline=options.baseline,
            curve=curve,
            output=OUTPUT,
        )
    except (Refused, TrackerError) as error:
        print(error, file=sys.stderr)
        return 2
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

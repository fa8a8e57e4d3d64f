"""A study's results from MLflow alone: a table on the terminal, in Markdown and CSV, and success over what was spent.

make compare name=countdown_credit
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from experiments.arms import arms_by, value_of
from experiments.compare import OUTPUT, log_comparison
from experiments.compare import notes as notes_on_arms
from experiments.curves import Curve, draw_curves
from experiments.files import write_text
from experiments.study.plan import Study, StudyError, find_study
from experiments.study.results import ArmResult, read_results
from experiments.study.rows import reach, rows_of
from experiments.study.table import as_csv, as_markdown, as_rich, caption_of, verdict
from experiments.track import Tracker, TrackerError, connect

POINTS = 60
WIDE = 240
TEST_BED = ("task.", "policy.", "suite.", "budget.evaluate.", "budget.grpo.max_completion_tokens")
COSTS = {"over_tokens": "generated tokens", "over_seconds": "seconds of training, the critic's before it"}
MOST_NOTED = 5


def report(tracker: Tracker, study: Study, *, output: Path) -> list[str]:
    """Write the report into ``output``, log it, print its table; returns what a reader should know beside it.

    Raises:
        StudyError: where there is nothing to compare.
    """
    arms = read_results(tracker, study)
    rows = rows_of(arms, study.primary.metric)
    caption = caption_of(study, reach(arms, "over_tokens"), reach(arms, "over_seconds"))
    notes = notes_on(study, arms)
    stem = output / study.name / "study"
    write_text(stem.with_suffix(".md"), as_markdown(study, rows, caption, notes))
    write_text(stem.with_suffix(".csv"), as_csv(study, rows))
    pictures = [path for kind in COSTS if (path := _drawn(arms, study, kind, stem)) is not None]
    log_comparison(tracker, study.name, [stem.with_suffix(".md"), stem.with_suffix(".csv"), *pictures])
    console = Console()
    if not console.is_terminal:
        console.width = WIDE
    console.print(as_rich(study, rows))
    return [verdict(study, rows), caption, *notes, f"Written: {stem}.*"]


def notes_on(study: Study, arms: Sequence[ArmResult]) -> list[str]:
    """What the table alone would hide: arms that lack seeds, runs of an arm that differ, test beds that do."""
    done = {arm.name: len(arm.seeds) for arm in arms}
    planned = {name: arm.seeds for name, arm in study.arms.items()}
    lacking = [f"{name} {done.get(name, 0)} of {most}" for name, most in planned.items() if done.get(name, 0) < most]
    lines = [f"Seeds so far: {', '.join(lacking)}."] if lacking else []
    lines += notes_on_arms(arms_by([run for arm in arms for run in arm.runs], ["arm"]))
    uncounted = [arm.name for arm in arms if not arm.curves("over_tokens")]
    if uncounted:
        lines.append(f"Not at equal compute, as not all their runs counted what they spent: {', '.join(uncounted)}.")
    differing = differing_test_beds(arms)
    if differing:
        more = f" and {len(differing) - MOST_NOTED} more" if len(differing) > MOST_NOTED else ""
        lines.append(f"The arms were not tested alike: {', '.join(differing[:MOST_NOTED])}{more} differ.")
    return lines


def differing_test_beds(arms: Sequence[ArmResult]) -> list[str]:
    """Parameters of the test bed that are not the same in all runs; a run's own seed is no part of it."""
    runs = [run for arm in arms for run in arm.runs]
    names = dict.fromkeys(name for run in runs for name in run.params if name.startswith(TEST_BED))
    fixed = [name for name in names if not name.endswith("seed")]
    return [name for name in fixed if len({value_of(run, name) for run in runs}) > 1]


def _drawn(arms: Sequence[ArmResult], study: Study, kind: str, stem: Path) -> Path | None:
    """Success over one cost, as far as every arm goes; None where it was not counted."""
    limit = reach(arms, kind)
    if limit is None or limit.cost < POINTS:
        return None
    grid = [round(limit.cost * point / POINTS) for point in range(POINTS)]
    curves = [
        Curve(label=arm.name, seeds=[{cost: curve.at(cost) for cost in grid} for curve in arm.curves(kind)])
        for arm in arms
        if arm.curves(kind)
    ]
    path = stem.with_name(f"{stem.name}_{kind}.png")
    draw_curves(curves, metric=study.curve, steps=COSTS[kind]).savefig(path, dpi=160)
    return path


def main(name: str) -> int:
    try:
        print("\n".join(report(connect(), find_study(name), output=OUTPUT)))
    except (StudyError, TrackerError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

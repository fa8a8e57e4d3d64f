"""A study's results from MLflow alone: a table on the terminal, in Markdown and CSV, and pictures.

Pictures: success over what was spent, and an arm's gain over how well its values told sibling steps apart.

make compare name=countdown_credit
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from experiments.analysis.curves import Curve, draw_curves
from experiments.compare import OUTPUT, log_comparison
from experiments.schema import register
from experiments.study import elsewhere
from experiments.study.cost_curve import CostCurve
from experiments.study.dose_picture import draw_doses
from experiments.study.dose_response import PICTURE, as_section, dosed
from experiments.study.equal_cost import reach
from experiments.study.finished import Mark, by_configuration, today
from experiments.study.launched import notes_on_primary
from experiments.study.notes import notes_on
from experiments.study.plan import Study, StudyError
from experiments.study.results import ArmResult, read_results
from experiments.study.rows import Row, rows_of
from experiments.study.runs_table import RUNS, runs_as_csv
from experiments.study.table import as_csv, as_latex, as_markdown, as_rich, caption_of
from experiments.study.verdict import verdict
from experiments.system.files import write_text
from experiments.track import Tracker, TrackerError, connect

POINTS = 60
MOST_DRAWN = 6
WIDE = 240
COSTS = {"over_tokens": "generated tokens", "over_seconds": "seconds of training, the critic's before it"}


def report(
    tracker: Tracker,
    study: Study,
    *,
    marks: Collection[Mark],
    output: Path,
    missing: Mapping[int, str] | None = None,
) -> list[str]:
    """Write the report into ``output``, log it, print its table; returns what a reader should know beside it.

    Args:
        tracker: where the runs are.
        study: which.
        marks: of the runs that count.
        output: the folder above the study's own.
        missing: see :class:`experiments.study.finished.Today`.

    Raises:
        StudyError: where there is nothing to compare.
    """
    arms = read_results(tracker, study, marks, missing or {})
    rows = rows_of(arms, study.primary.metric, start_per_seed=study.start_per_seed)
    caption = caption_of(study, rows)
    notes = notes_on_primary(tracker, study)
    notes += notes_on(study, arms, by_configuration(tracker, study, marks)[1], missing or {})
    stem = output / study.name / "study"
    sections = [elsewhere.as_section(study, {row.name: row.elsewhere for row in rows}), as_section(study, dosed(rows))]
    write_text(stem.with_suffix(".md"), "\n".join([as_markdown(study, rows, caption, notes), *filter(None, sections)]))
    write_text(stem.with_suffix(".csv"), as_csv(study, rows))
    write_text(stem.with_suffix(".tex"), as_latex(study, rows, caption))
    write_text(runs := stem.with_name(RUNS), runs_as_csv(arms))
    chosen = drawn(arms, study)
    pictures = [path for kind in COSTS if (path := _drawn(chosen, study, kind, stem)) is not None]
    pictures += _drawn_doses(study, rows, stem)
    log_comparison(
        tracker, study.name, [*(stem.with_suffix(kind) for kind in (".md", ".csv", ".tex")), runs, *pictures]
    )
    console = Console()
    if not console.is_terminal:
        console.width = WIDE
    console.print(as_rich(study, rows))
    if others := [arm.name for arm in arms if arm not in chosen]:
        notes.append(f"In the table and not in the pictures of success: {', '.join(others)}.")
    return [verdict(study, rows), caption, *notes, f"Written: {stem}.*"]


def drawn(arms: Sequence[ArmResult], study: Study) -> list[ArmResult]:
    """The arms of a picture of success, in their order: baseline, primary arm, and those of the most seeds.

    More than ``MOST_DRAWN`` lines with bands cannot be told apart.
    """
    first = (study.primary.baseline, study.primary.arm)
    ranked = sorted(arms, key=lambda arm: (arm.name not in first, -len(arm.seeds)))
    return [arm for arm in arms if arm in ranked[:MOST_DRAWN]]


def _drawn(arms: Sequence[ArmResult], study: Study, kind: str, stem: Path) -> Path | None:
    """Success over one cost, each arm as far as all its seeds go; None where the baseline did not count it."""
    curves = [_curve(arm.name, found) for arm in arms if (found := arm.curves(kind)) and reach(found) >= POINTS]
    if not curves or curves[0].label != arms[0].name:
        return None
    path = stem.with_name(f"{stem.name}_{kind}.png")
    draw_curves(curves, metric=study.curve, steps=COSTS[kind]).savefig(path, dpi=160)
    return path


def _drawn_doses(study: Study, rows: Sequence[Row], stem: Path) -> list[Path]:
    """Gain over what the values of steps told; nothing where no arm values steps."""
    if not (arms := dosed(rows)):
        return []
    path = stem.with_name(PICTURE)
    draw_doses(study, arms).savefig(path, dpi=160)
    return [path]


def _curve(label: str, seeds: Sequence[CostCurve]) -> Curve:
    grid = [int(reach(seeds) * point / POINTS) for point in range(POINTS + 1)]
    return Curve(label=label, seeds=[{cost: curve.at(cost) for cost in grid} for curve in seeds])


def main(study: Study) -> int:
    register()  # today's configurations are composed to tell which runs count
    try:
        tracker = connect()
        print("\n".join(report(tracker, study, **today(tracker, study)._asdict(), output=OUTPUT)))
    except (StudyError, TrackerError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0

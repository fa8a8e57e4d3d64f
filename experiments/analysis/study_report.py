"""The report of a study, from MLflow alone: a table on the terminal, in Markdown, LaTeX and CSV, and pictures.

The pictures show success over cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.analysis.equal_cost import shared_cost
from experiments.analysis.figures import Curve, draw_curves
from experiments.analysis.runs import log_comparison
from experiments.analysis.study_notes import notes_on
from experiments.analysis.study_results import ArmResult, Cost, read_results
from experiments.analysis.study_rows import ArmRow, rows_of, verdict
from experiments.analysis.study_table import (
    curves_as_csv,
    final_table,
    other_settings_table,
    rows_as_csv,
    runs_as_csv,
    study_table,
)
from experiments.analysis.study_tests import equivalence_table, family_table, power_sentence
from experiments.jobs.finished import Counted, counted_runs, today
from experiments.jobs.study_plan import Study, notes_on_primary
from experiments.mlflow_sync import Tracker
from experiments.schema import register
from experiments.system.files import write_text
from experiments.table import Table

POINTS = 60
MOST_DRAWN = 6
COSTS: dict[Cost, str] = {"tokens": "generated tokens", "seconds": "seconds of training, the critic's before it"}


def report_today(tracker: Tracker, study: Study, *, output: Path) -> list[str]:
    """Writes the report of the runs that count by today's configurations."""
    register()
    return report(tracker, study, counted_runs(tracker, study, today(tracker, study)), output=output)


def report(tracker: Tracker, study: Study, counted: Counted, *, output: Path) -> list[str]:
    """Writes the report into a folder below ``output``, logs it and prints its table.

    Returns the verdict, the caption, the notes and where the report was written.

    Raises:
        StudyError: if there is nothing to compare.
    """
    arms = read_results(tracker, study, counted.runs)
    rows = rows_of(arms, study.primary.metric, start_per_seed=study.start_per_seed)
    whole = study_table(study, rows, brief=False)
    primary = next((row for row in rows if row.name == study.primary.arm), None)
    notes = [power_sentence(study, primary and primary.gain), *notes_on_primary(tracker, study)]
    notes += notes_on(study, arms, counted)
    folder = output / study.name
    sections = {
        "Success at the end": final_table(study, arms),
        "Tests": family_table(study, arms),
        "Equivalence": equivalence_table(study, arms),
        "In other settings": other_settings_table(study, arms),
    }
    texts = {
        folder / "study.md": _as_markdown(study, rows, whole.as_markdown(), notes, sections),
        folder / "study.csv": rows_as_csv(study, rows),
        folder / "study.tex": whole.as_latex(),
        folder / "study_runs.csv": runs_as_csv(arms),
        folder / "study_curves.csv": curves_as_csv(arms),
    }
    for path, text in texts.items():
        write_text(path, text)
    drawn = choose_arms(arms, study)
    pictures = [path for cost in COSTS if (path := _draw(drawn, study, cost, folder)) is not None]
    log_comparison(tracker, study.name, [*texts, *pictures])
    study_table(study, rows, brief=True).show(wide=240)
    for name in ("Success at the end", "Tests", "Equivalence"):
        if (table := sections[name]) is not None:
            table.show()
    if others := [arm.name for arm in arms if arm not in drawn]:
        notes.append(f"In the table and not in the pictures of success: {', '.join(others)}.")
    return [verdict(study, rows), whole.caption, *notes, f"Written: {folder / 'study'}.*"]


def _as_markdown(
    study: Study,
    rows: Sequence[ArmRow],
    table: str,
    notes: Sequence[str],
    sections: Mapping[str, Table | None],
) -> str:
    about = [f"- {row.name}: {study.arms[row.name].about}" for row in rows]
    parts = [f"# {study.question}", "", verdict(study, rows), "", table.removesuffix("\n"), "", *about, "", *notes, ""]
    parts += [f"## {name}\n\n{found.as_markdown()}" for name, found in sections.items() if found]
    return "\n".join(parts)


def choose_arms(arms: Sequence[ArmResult], study: Study) -> list[ArmResult]:
    """The arms of a picture of success, in the given order: baseline, primary arm, and those with the most seeds.

    More than ``MOST_DRAWN`` lines with bands cannot be distinguished.
    """
    first = (study.primary.baseline, study.primary.arm)
    ranked = sorted(arms, key=lambda arm: (arm.name not in first, -len(arm.seeds)))
    return [arm for arm in arms if arm in ranked[:MOST_DRAWN]]


def _draw(arms: Sequence[ArmResult], study: Study, cost: Cost, folder: Path) -> Path | None:
    """Draws success over one cost, each arm up to the cost that all its seeds reach; None without the baseline's curve.

    An arm has no curve if a seed did not count the cost, or if the reached cost is below ``POINTS``.
    """
    curves = []
    for arm in arms:
        seeds = list(arm.curves(cost).values())
        if seeds and (reach := shared_cost(seeds)) >= POINTS:
            grid = [int(reach * point / POINTS) for point in range(POINTS + 1)]
            curves.append(Curve(label=arm.name, seeds=[{at: curve.at(at) for at in grid} for curve in seeds]))
    if not curves or curves[0].label != arms[0].name:
        return None
    path = folder / f"study_over_{cost}.png"
    draw_curves(curves, metric=study.curve, steps=COSTS[cost]).savefig(path, dpi=160)
    return path

"""A study's runs as those of any experiment, in ``make report`` and in ``make compare`` where more is wished for.

Which runs count, with what they are compared and over which seeds stays as the study says.
"""

from __future__ import annotations

from collections.abc import Sequence

from experiments.analysis.fixed import NOTHING, Fixed, Primary
from experiments.config.hints import command_line
from experiments.schema import register
from experiments.study.finished import counted, today
from experiments.study.notes import notes_on_left_out
from experiments.study.plan import Study
from experiments.track import Tracker


def fixed_by(tracker: Tracker, studies: Sequence[Study], *, alone: bool) -> Fixed:
    """What studies fix.

    Args:
        tracker: where their runs are.
        studies: those that are named; may be empty.
        alone: nothing else is named.

    Raises:
        StudyError: for one of which no run counts today.
    """
    if not studies:
        return NOTHING
    register()  # today's configurations are composed to tell which runs count
    run_ids, notes = list[str](), list[str]()
    for study in studies:
        marks, missing = today(tracker, study)
        runs, others = counted(tracker, study, marks, missing)
        run_ids += [run.run_id for run in runs]
        notes.append(
            f"Of the study {study.name} the runs of today's configuration count; "
            f"what it was to tell says {command_line('compare', study.called or study.name)}."
        )
        notes += notes_on_left_out(study, others, missing)
    return Fixed(
        studies=[study.name for study in studies],
        run_ids=run_ids,
        primary=primary_of(studies[0]) if alone and len(studies) == 1 else None,
        notes=notes,
    )


def primary_of(study: Study) -> Primary:
    """What it compares by."""
    primary = study.primary
    return Primary(metric=primary.metric, baseline=primary.baseline, start_per_seed=study.start_per_seed)

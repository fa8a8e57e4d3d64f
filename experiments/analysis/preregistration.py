"""What a study fixed before its runs: which of them count, by which metric and against which arm they are compared."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from experiments.analysis.statistics import (
    BySeed,
    Difference,
    difference,
    difference_over_shared_seeds,
    seeds_to_compare,
)
from experiments.config.hints import command_line
from experiments.mlflow_sync import TrackedRun, Tracker
from experiments.studies.plan import Study


@dataclass(frozen=True, kw_only=True)
class Preregistration:
    """Of the experiments that are compared."""

    studies: Collection[str] = ()
    """Those that are studies; of others every finished run counts."""
    run_ids: Collection[str] = ()
    """The runs of studies that count."""
    study: Study | None = None
    """The study, where it is compared alone: it fixes metric and baseline."""
    notes: Sequence[str] = ()
    """What a reader should know of the runs that do not count."""

    def counts(self, run: TrackedRun) -> bool:
        return run.experiment not in self.studies or run.run_id in self.run_ids

    @property
    def starts_may_differ(self) -> bool:
        """Whether the policies that an arm's runs begin from are meant to differ."""
        return self.study is not None and self.study.start_per_seed

    def difference(self, values: BySeed, baseline: BySeed) -> Difference | None:
        """An arm's to its baseline's; None where no seeds can be compared."""
        if self.study is None:
            return difference_over_shared_seeds(values, baseline)
        return difference_in_a_study(values, baseline, start_per_seed=self.study.start_per_seed)


NOTHING_FIXED = Preregistration()


def difference_in_a_study(values: BySeed, baseline: BySeed, *, start_per_seed: bool) -> Difference | None:
    """Over the seeds that :func:`seeds_to_compare` chooses; None where there are none."""
    ours, theirs = seeds_to_compare(values, baseline, start_per_seed=start_per_seed)
    return difference(ours, theirs) if ours else None


def preregistration(tracker: Tracker, studies: Sequence[Study], *, alone: bool) -> Preregistration:
    """What these studies fix.

    Args:
        tracker: where their runs are.
        studies: those among the names that are compared; may be empty.
        alone: nothing else is compared.

    Raises:
        StudyError: for one of which no run counts today.
    """
    if not studies:
        return NOTHING_FIXED
    from experiments.analysis.study_notes import notes_on_left_out  # slow: they compose today's configurations
    from experiments.schema import register
    from experiments.studies.finished import counted, today

    register()
    run_ids, notes = list[str](), list[str]()
    for study in studies:
        marks, missing = today(tracker, study)
        runs, others = counted(tracker, study, marks, missing)
        run_ids += [run.run_id for run in runs]
        report = command_line("compare", study.called or study.name)
        notes.append(f"Of the study {study.name} the runs of today's configuration count; {report} shows its report.")
        notes += notes_on_left_out(study, others, missing)
    return Preregistration(
        studies=[study.name for study in studies],
        run_ids=run_ids,
        study=studies[0] if alone and len(studies) == 1 else None,
        notes=notes,
    )

"""Which row of a published table an arm repeats: the same settings, the same base model."""

from __future__ import annotations

from contrastive_reasoning.published import PublishedArm, PublishedTable, same_model
from experiments.analysis.arms import ABSENT, Arm, value_of
from experiments.tracking.tracked_run import TrackedRun

MODEL = "policy.pretrained"


def published_arm(arm: Arm, table: PublishedTable | None) -> PublishedArm | None:
    """The row that all runs of ``arm`` repeat; None where there is none."""
    runs = arm.runs.values()
    return next((row for row in table.arms if all(_repeats(run, row) for run in runs)), None) if table else None


def _repeats(run: TrackedRun, row: PublishedArm) -> bool:
    if not same_model(value_of(run, MODEL), row.model):
        return False
    return all(_alike(value_of(run, key), value) for key, value in row.settings.items())


def _alike(said: str, printed: str | float) -> bool:
    """Numbers by their value; what a run does not say, of a reward without temperature say, is not held against it."""
    if isinstance(printed, str):
        return said == printed
    try:
        return said == ABSENT or float(said) == printed
    except ValueError:
        return False

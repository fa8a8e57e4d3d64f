"""All that a page is made of, read from MLflow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.analysis.comparison import Comparison
from experiments.analysis.runs import Arm
from experiments.mlflow_sync import TrackedRun, Tracker
from experiments.run_folder.reader import ORIGIN, Origin

Stages = Mapping[str, TrackedRun]
"""Stage → its run."""


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """The runs of a comparison with what lies below them."""

    tracker: Tracker
    comparison: Comparison
    stages: Mapping[str, Stages]
    """By id of the experiment's run."""
    origins: Mapping[str, Origin]
    """By run id; older runs have none."""

    @property
    def names(self) -> Sequence[str]:
        return self.comparison.request.names

    @property
    def arms(self) -> Sequence[Arm]:
        return self.comparison.arms

    @property
    def runs(self) -> list[TrackedRun]:
        """Those that count: of each arm and seed the newest."""
        return [run for arm in self.arms for run in arm.runs.values()]

    def newest_stages(self, arm: Arm) -> Stages:
        """The stages of an arm's newest run."""
        newest = max(arm.runs.values(), key=lambda run: run.start)
        return self.stages.get(newest.run_id, {})

    def stages_of(self, arm: Arm, metric: str, order: Sequence[str]) -> list[TrackedRun]:
        """Of each run of an arm the first stage in ``order`` that logged ``metric``; of some runs none."""
        found = [
            [there[name] for name in order if name in there and metric in there[name].metrics]
            for there in (self.stages.get(run.run_id, {}) for run in arm.runs.values())
        ]
        return [stages[0] for stages in found if stages]


def gather(tracker: Tracker, comparison: Comparison) -> Gathered:
    """Read the stages and the origins of the runs that a comparison counts."""
    counted = {run.run_id for arm in comparison.arms for run in arm.runs.values()}
    stages: dict[str, dict[str, TrackedRun]] = {run_id: {} for run_id in counted}
    for stage in tracker.runs(comparison.request.names, kind="stage"):
        if (parent := stage.tags.get("mlflow.parentRunId", "")) in counted:
            stages[parent][stage.tags["stage"]] = stage
    recorded = [run_id for run_id in counted if ORIGIN in tracker.artifacts.files(run_id)]
    origins = {run_id: Origin.parse(tracker.artifacts.read(run_id, ORIGIN)) for run_id in recorded}
    return Gathered(tracker=tracker, comparison=comparison, stages=stages, origins=origins)


def identity(stage: TrackedRun) -> tuple[str, str]:
    """The same for all runs that share a stage; without a fingerprint a stage is shared by none."""
    return stage.tags["stage"], stage.tags.get("fingerprint", stage.run_id)

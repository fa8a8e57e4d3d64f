"""All that a page is made of, read from MLflow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.analysis.comparison import Comparison
from experiments.analysis.runs import ArmRuns, Stages, stages_below
from experiments.mlflow_sync import TrackedRun, Tracker
from experiments.run_folder.reader import ORIGIN, Origin


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
    def arms(self) -> Sequence[ArmRuns]:
        return self.comparison.table.arms

    @property
    def runs(self) -> list[TrackedRun]:
        """Those that count: of each arm and seed the newest."""
        return [run for arm in self.arms for run in arm.runs.values()]


def gather(tracker: Tracker, comparison: Comparison) -> Gathered:
    """Read the stages and the origins of the runs that a comparison counts."""
    counted = {run.run_id for arm in comparison.table.arms for run in arm.runs.values()}
    below = stages_below(tracker, comparison.request.names)
    recorded = [run_id for run_id in counted if ORIGIN in tracker.artifacts.files(run_id)]
    return Gathered(
        tracker=tracker,
        comparison=comparison,
        stages={run_id: below.get(run_id, {}) for run_id in counted},
        origins={run_id: Origin.parse(tracker.artifacts.read(run_id, ORIGIN)) for run_id in recorded},
    )


def identity(stage: TrackedRun) -> tuple[str, str]:
    """The same for all runs that share a stage; without a fingerprint a stage is shared by none."""
    return stage.tags["stage"], stage.tags.get("fingerprint", stage.run_id)

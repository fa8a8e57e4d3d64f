"""What was fixed before runs are compared: by a study, which of its runs count, against what and by which metric."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from experiments.analysis.seeds import Difference, in_a_study, over_shared
from experiments.tracking.tracked_run import TrackedRun

BY_ARM = ["arm"]
"""What tells apart the runs of one study."""


@dataclass(frozen=True, kw_only=True)
class Primary:
    """What a study compares, and how."""

    metric: str
    baseline: str
    start_per_seed: bool
    """See :func:`experiments.analysis.seeds.compared`."""


@dataclass(frozen=True, kw_only=True)
class Fixed:
    """Of the experiments that are named."""

    studies: Collection[str] = ()
    """Those that are studies; of others every finished run counts."""
    run_ids: Collection[str] = ()
    """The runs of studies that count."""
    primary: Primary | None = None
    """Of the study, where it is compared alone."""
    notes: Sequence[str] = ()
    """What a reader should know of it."""

    def counts(self, run: TrackedRun) -> bool:
        return run.experiment not in self.studies or run.run_id in self.run_ids

    @property
    def starts_may_differ(self) -> bool:
        """Whether the policies that an arm's runs begin from are meant to differ."""
        return self.primary is not None and self.primary.start_per_seed

    def difference(self, values: Mapping[str, float], baseline: Mapping[str, float]) -> Difference | None:
        """Of an arm and what it is compared with, both by seed; None where no seeds can be compared."""
        if self.primary is None:
            return over_shared(values, baseline)
        return in_a_study(values, baseline, start_per_seed=self.primary.start_per_seed)


NOTHING = Fixed()

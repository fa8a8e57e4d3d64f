"""What MLflow holds of a study as it is today: of each arm and seed one run, problem by problem and over its costs."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from contrastive_reasoning.evaluation import pass_at_k
from experiments.analysis.arms import value_of
from experiments.config.hints import did_you_mean
from experiments.study.cost_curve import CostCurve, curve_of
from experiments.study.finished import Mark, counted
from experiments.study.plan import METRICS, SETTING, Study, StudyError
from experiments.track import Tracker
from experiments.tracking.tracked_run import TrackedRun

COMPLETIONS = "test/completions"
TRAINED = ("critic", "grpo")
"""The stages whose seconds count."""
SPENT_TOKENS, SPENT_SECONDS = "train/spent/tokens", "train/spent/seconds"
AUROC_SIBLINGS = "train/steps/auroc_siblings"


@dataclass(frozen=True, kw_only=True)
class SeedResult:
    """One finished run."""

    run: TrackedRun
    threads: Sequence[str]
    """Of the processes that trained it, with its critic; runs of before this was written have none."""
    processors: Sequence[str]
    """On which it was trained; runs of before this was written have none."""
    commits: Sequence[str]
    """Of the code that made its stages, which may be reused ones; of before this was written, of the run's own code."""
    problems: Sequence[str]
    """Ids of the test problems."""
    greedy: Sequence[float]
    """Of each problem 1 where the greedy completion is correct, else 0."""
    drawn: Sequence[tuple[int, int]] | None
    """Of each problem how many sampled completions are correct, of how many; None where none were drawn."""
    over_tokens: CostCurve | None
    """The validation metric over generated tokens; None in runs that did not count them."""
    over_seconds: CostCurve | None
    """The same over seconds of training, those of the critic before them; None also where the critic's are unknown."""
    tokens: float | None
    """All that the run generated in training, to its last step and not only to its last validation; None: uncounted."""
    seconds: float | None
    """All of its training, that of the critic before it included; None where either is unknown."""
    critic_seconds: float | None
    """What training its critic took, 0 without one; None where nobody counted: it came from a checkpoint, say."""
    auroc_siblings: float | None
    """How well its steps' values told siblings apart, the mean over rollout batches; None where no batch could tell."""

    @property
    def sampled(self) -> Sequence[float] | None:
        """Of each problem the share of sampled completions that are correct; None where none were drawn."""
        return None if self.drawn is None else [correct / samples for correct, samples in self.drawn]

    def scores(self, metric: str) -> Sequence[float]:
        """What decides: greedy verdicts or sampled shares."""
        scores = self.greedy if metric == METRICS[0] else self.sampled
        if scores is None:
            raise StudyError(f"run {self.run.run_id} drew no samples: budget.evaluate.samples was 0")
        return scores


@dataclass(frozen=True, kw_only=True)
class ArmResult:
    """The finished seeds of an arm."""

    name: str
    seeds: Mapping[str, SeedResult]

    @cached_property
    def runs(self) -> list[TrackedRun]:
        return [result.run for result in self.seeds.values()]

    def table(self, metric: str) -> Float[Tensor, "seed problem"]:
        return torch.tensor([list(result.scores(metric)) for result in self.seeds.values()], dtype=torch.float64)

    @property
    def is_sampled(self) -> bool:
        """Whether all of its runs drew samples."""
        return all(result.drawn is not None for result in self.seeds.values())

    def pass_table(self, k: int) -> Float[Tensor, "seed problem"]:
        """Each problem's estimate of pass@k; all runs drew samples."""
        drawn = [result.drawn or () for result in self.seeds.values()]
        values = [[pass_at_k(samples, correct, k) for correct, samples in of_seed] for of_seed in drawn]
        return torch.tensor(values, dtype=torch.float64)

    def by_seed(self, values: Sequence[float]) -> dict[str, float]:
        """Values of the seeds in their order, by seed."""
        return dict(zip(self.seeds, values, strict=True))

    def curves(self, kind: str) -> list[CostCurve]:
        """``over_tokens`` or ``over_seconds`` of each seed; the empty list unless all have it."""
        found = [getattr(result, kind) for result in self.seeds.values()]
        return [] if None in found else found


def read_results(
    tracker: Tracker, study: Study, marks: Collection[Mark], missing: Mapping[int, str] | None = None
) -> list[ArmResult]:
    """The arms that have finished runs, the baseline first, then in the study's order.

    Args:
        tracker: where the runs are.
        study: which.
        marks: of the runs that count, today's; of two with the same one the newer counts.
        missing: see :class:`experiments.study.finished.Today`.

    Raises:
        StudyError: where MLflow has no such run of the baseline, or of the curve, or runs saw other test problems.
    """
    runs, _ = counted(tracker, study, marks, missing or {})
    newest = {(run.tags["arm"], run.tags["seed"]): run for run in runs}
    stages: dict[str, dict[str, TrackedRun]] = {}
    for stage in tracker.runs([study.name], kind="stage"):
        stages.setdefault(stage.tags["mlflow.parentRunId"], {})[stage.tags["stage"]] = stage
    names = [study.primary.baseline, *(arm for row in study.order for arm in row if arm != study.primary.baseline)]
    arms = []
    for name in names:
        seeds = sorted((seed for arm, seed in newest if arm == name), key=int)
        found = {seed: _read(tracker, study, newest[name, seed], stages[newest[name, seed].run_id]) for seed in seeds}
        if found:
            arms.append(ArmResult(name=name, seeds=found))
    if not arms or arms[0].name != study.primary.baseline:
        raise StudyError(f"{study.name}: no seed of the baseline {study.primary.baseline} has finished yet")
    _check_problems(arms)
    return arms


def _read(tracker: Tracker, study: Study, run: TrackedRun, stages: Mapping[str, TrackedRun]) -> SeedResult:
    if not {"grpo", "evaluate"} <= stages.keys():
        raise StudyError(f"run {run.run_id} of arm {run.tags['arm']} has no stages grpo and evaluate to compare")
    rows = [row for row in tracker.table(stages["evaluate"].run_id, COMPLETIONS) if row["setting"] == SETTING]
    if not rows:
        raise StudyError(
            f"run {run.run_id} of arm {run.tags['arm']} was tested on no problem of the setting {SETTING!r}"
        )
    grpo, before = stages["grpo"].run_id, _critic_seconds(run, stages.get("critic"))
    curve = dict(tracker.history(grpo, study.curve))
    if not curve:
        validated = [name for name in stages["grpo"].metrics if name.startswith("val/")]
        raise StudyError(f"{study.name}.curve: no run has {study.curve!r}; {did_you_mean(study.curve, validated)}")
    spent, over_seconds = stages["grpo"].metrics, None
    if before is not None:
        over_seconds = curve_of(curve, dict(tracker.history(grpo, SPENT_SECONDS)), before=before)
    return SeedResult(
        run=run,
        threads=_said([stages[name] for name in TRAINED if name in stages], "threads"),
        processors=_said([stages[name] for name in TRAINED if name in stages], "processor"),
        commits=_said(stages.values(), "git_sha") or [value_of(run, "git_sha")],
        problems=[row["problem"] for row in rows],
        greedy=[float(row["status"] == "ok") for row in rows],
        drawn=_drawn(rows),
        over_tokens=curve_of(curve, dict(tracker.history(grpo, SPENT_TOKENS)), before=0.0),
        over_seconds=over_seconds,
        tokens=spent.get(SPENT_TOKENS),
        seconds=before + spent[SPENT_SECONDS] if before is not None and SPENT_SECONDS in spent else None,
        critic_seconds=before,
        auroc_siblings=mean_defined(value for _, value in tracker.history(grpo, AUROC_SIBLINGS)),
    )


def _said(stages: Iterable[TrackedRun], name: str) -> list[str]:
    """What stages say themselves, whichever run they were made in."""
    return sorted({stage.params.get(name, "") for stage in stages} - {""})


def mean_defined(values: Iterable[float]) -> float | None:
    """The mean of what is a number; None where nothing is. A batch that could not tell is no batch that was wrong."""
    defined = [value for value in values if math.isfinite(value)]
    return fmean(defined) if defined else None


def _critic_seconds(run: TrackedRun, stage: TrackedRun | None) -> float | None:
    """What training the critic took; None where it is not known, which is not the same as nothing."""
    given = (value for name, value in run.params.items() if name.startswith("reward.") and name.endswith(".checkpoint"))
    if any(value != "null" for value in given):
        return None
    return 0.0 if stage is None else stage.metrics.get(SPENT_SECONDS)


def _drawn(rows: Sequence[Mapping[str, Any]]) -> list[tuple[int, int]] | None:
    """``3/8`` as (3, 8). A table that has the column for another setting's sake has nothing in it here."""
    written = [row.get("samples_correct") for row in rows]
    if None in written:
        return None
    parts = [str(one).partition("/") for one in written]
    return [(int(correct), int(samples)) for correct, _, samples in parts]


def _check_problems(arms: Sequence[ArmResult]) -> None:
    first = next(iter(arms[0].seeds.values()))
    for arm in arms:
        for seed, result in arm.seeds.items():
            if list(result.problems) != list(first.problems):
                raise StudyError(
                    f"{arm.name} seed {seed} was tested on other problems than {arms[0].name}: "
                    "after a change of the test bed each arm has to run again"
                )

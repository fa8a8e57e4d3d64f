"""Results of a study, read from MLflow: one run for each arm and seed, with each problem's result and its costs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from contrastive_reasoning.evaluation import pass_at_k
from contrastive_reasoning.rewards.critic import FRESH
from experiments.analysis.equal_cost import CostCurve, curve_of
from experiments.analysis.evaluation_sets import GREEDY
from experiments.analysis.runs import Stages, stages_below, value_of, with_measured
from experiments.config.hints import did_you_mean
from experiments.jobs.study_plan import AUC, SETTING, Study, StudyError
from experiments.mlflow_sync import TrackedRun, Tracker

Cost = Literal["tokens", "seconds"]
SPENT = "train/spent/"
VALIDATED = {"greedy": "val/verifier/accuracy", "sampled": "val/verifier/accuracy_sampled"}


@dataclass(frozen=True, kw_only=True)
class SeedResult:
    """One finished run. Values that an older run did not record are empty or None."""

    run: TrackedRun
    threads: Sequence[str]
    """Numbers of threads of the processes that trained it and its critic."""
    processors: Sequence[str]
    commits: Sequence[str]
    """Commits of the code that made its stages, which may be reused; if none is recorded, the run's own commit."""
    problems: Sequence[str]
    """Ids of the test problems."""
    greedy: Sequence[float]
    """For each problem, 1 if the greedy completion is correct, else 0."""
    drawn: Sequence[tuple[int, int]] | None
    """For each problem, the numbers of correct and of all sampled completions; None if none were drawn."""
    curves: Mapping[Cost, CostCurve | None]
    """The validation metric over generated tokens, and over seconds of training, which start with the critic's; None
    if the run did not count that cost, or if the critic's seconds are unknown."""
    validations: Mapping[int, Mapping[str, float | None]]
    """By step: the tokens and seconds up to it, the critic's among them, greedy and sampled success. ``curve`` is the
    study's curve if that is another metric."""
    spent: Mapping[Cost, float | None]
    """Cost of all its training, to its last step and not only to its last validation; seconds include the critic's."""
    critic_seconds: float | None
    """0 without a critic; None if they were not counted, for example for a critic from a checkpoint."""
    critic: str | None
    """Fingerprint of its critic's stage, which runs with equal settings reuse; None without one."""
    auc: float
    """The mean of the study's curve over the validations after step 0; NaN without any."""
    auroc_siblings: float | None
    """How well its step values ranked siblings, the mean over rollout batches; None if it is defined in no batch."""

    @property
    def sampled(self) -> Sequence[float] | None:
        """For each problem, the share of sampled completions that are correct; None if none were drawn."""
        return None if self.drawn is None else [correct / samples for correct, samples in self.drawn]


@dataclass(frozen=True, kw_only=True)
class ArmResult:
    """The finished seeds of an arm."""

    name: str
    seeds: Mapping[str, SeedResult]

    @property
    def runs(self) -> list[TrackedRun]:
        return [result.run for result in self.seeds.values()]

    @property
    def is_sampled(self) -> bool:
        """Whether all its runs drew samples."""
        return all(result.drawn is not None for result in self.seeds.values())

    def scores(self, metric: str) -> Float[Tensor, "seed problem"]:
        """The values of a primary metric: greedy verdicts, sampled shares, or one number a seed for ``AUC``.

        Raises StudyError without samples.
        """
        scores = []
        for result in self.seeds.values():
            found = [result.auc] if metric == AUC else result.greedy if metric == GREEDY else result.sampled
            if found is None:
                raise StudyError(f"run {result.run.run_id} drew no samples: budget.evaluate.samples was 0")
            scores.append(list(found))
        return torch.tensor(scores, dtype=torch.float64)

    def by_seed(self, metric: str) -> dict[str, float]:
        """Seed → mean of a primary metric. Raises StudyError without samples."""
        return dict(zip(self.seeds, self.scores(metric).mean(1).tolist(), strict=True))

    def shared_metrics(self, pattern: re.Pattern[str]) -> dict[str, dict[str, float]]:
        """The metrics that match ``pattern`` and that all runs have: its group → seed → value."""
        first, *_ = self.runs
        named = {match[1]: name for name in first.metrics if (match := pattern.fullmatch(name))}
        shared = {key: name for key, name in named.items() if all(name in run.metrics for run in self.runs)}
        return {key: {seed: one.run.metrics[name] for seed, one in self.seeds.items()} for key, name in shared.items()}

    def pass_at(self, k: int) -> Float[Tensor, "seed problem"]:
        """Each problem's estimate of pass@k; requires that all runs drew samples."""
        drawn = [result.drawn or () for result in self.seeds.values()]
        values = [[pass_at_k(samples, correct, k) for correct, samples in of_seed] for of_seed in drawn]
        return torch.tensor(values, dtype=torch.float64)

    def curves(self, cost: Cost) -> dict[str, CostCurve]:
        """The curves by seed; empty unless all seeds have one."""
        found = {seed: curve for seed, result in self.seeds.items() if (curve := result.curves[cost]) is not None}
        return found if len(found) == len(self.seeds) else {}


def read_results(tracker: Tracker, study: Study, runs: Iterable[TrackedRun]) -> list[ArmResult]:
    """The arms that have finished runs, the baseline first, then in the study's order.

    ``runs`` are those that count, oldest first; of several runs of one arm and seed the newest counts.

    Raises:
        StudyError: if the baseline has no such run, or if runs were tested on different problems. Also if a run lacks
            its stages, its test problems or the study's curve, and if the primary metric is ``AUC`` and runs were
            validated at different steps.
    """
    newest = {(run.tags["arm"], run.tags["seed"]): run for run in runs}
    stages, baseline = stages_below(tracker, [study.name]), study.primary.baseline
    arms = []
    for name in dict.fromkeys([baseline, *(arm for row in study.order for arm in row)]):
        seeds = sorted((seed for arm, seed in newest if arm == name), key=int)
        found = {seed: newest[name, seed] for seed in seeds}
        results = {seed: _read(tracker, study, run, stages[run.run_id]) for seed, run in found.items()}
        arms += [ArmResult(name=name, seeds=results)] if results else []
    if not arms or arms[0].name != baseline:
        raise StudyError(f"{study.name}: no seed of the baseline {baseline} has finished yet")
    first = next(iter(arms[0].seeds.values()))
    problems, steps = first.problems, list(first.validations)
    for arm in arms:
        for seed, result in arm.seeds.items():
            if study.primary.metric == AUC and list(result.validations) != steps:
                raise StudyError(
                    f"{arm.name} seed {seed} was validated at the steps {list(result.validations)}, and {baseline} at "
                    f"{steps}: {study.measure} needs equal ones"
                )
        if others := [seed for seed, result in arm.seeds.items() if result.problems != problems]:
            raise StudyError(
                f"{arm.name} seed {others[0]} was tested on other problems than {baseline}: "
                "after a change of the test bed each arm has to run again"
            )
    return arms


def _read(tracker: Tracker, study: Study, run: TrackedRun, stages: Stages) -> SeedResult:
    of_arm = f"run {run.run_id} of arm {run.tags['arm']}"
    if not {"grpo", "evaluate"} <= stages.keys():
        raise StudyError(f"{of_arm} has no stages grpo and evaluate to compare")
    rows = [row for row in tracker.table(stages["evaluate"].run_id, "test/completions") if row["setting"] == SETTING]
    if not rows:
        raise StudyError(f"{of_arm} was tested on no problem of the setting {SETTING!r}")
    grpo, critic_seconds = stages["grpo"], _critic_seconds(run, stages.get("critic"))

    def history(metric: str) -> dict[int, float]:
        return dict(tracker.history(grpo.run_id, metric))

    values = history(study.curve)
    if not values:
        validated = [name for name in grpo.metrics if name.startswith("val/")]
        raise StudyError(f"{study.name}.curve: no run has {study.curve!r}; {did_you_mean(study.curve, validated)}")
    before: dict[Cost, float | None] = {"tokens": 0.0, "seconds": critic_seconds}
    costs: dict[Cost, dict[int, float]] = {}
    spent: dict[Cost, float | None] = {}
    for cost, first in before.items():
        steps, last = history(SPENT + cost), grpo.metrics.get(SPENT + cost)
        costs[cost], spent[cost] = {}, None
        if first is not None and steps:
            costs[cost] = {step: first + value for step, value in {0: 0.0, **steps}.items()}
        if first is not None and last is not None:
            spent[cost] = first + last
    trained = [stages[name] for name in ("critic", "grpo") if name in stages]
    shown = VALIDATED if study.curve in VALIDATED.values() else {**VALIDATED, "curve": study.curve}
    by_step = {**costs, **{name: history(metric) for name, metric in shown.items()}}
    validated_at = sorted({step for name in shown for step in by_step[name]})
    return SeedResult(
        run=with_measured(run, stages),
        threads=_recorded_values(trained, "threads"),
        processors=_recorded_values(trained, "processor"),
        commits=_recorded_values(stages.values(), "git_sha") or [value_of(run, "git_sha")],
        problems=[row["problem"] for row in rows],
        greedy=[float(row["status"] == "ok") for row in rows],
        drawn=_sample_counts(rows),
        curves={cost: curve_of(values, by) for cost, by in costs.items()},
        validations={step: {name: found.get(step) for name, found in by_step.items()} for step in validated_at},
        spent=spent,
        critic_seconds=critic_seconds,
        critic=stages["critic"].tags.get("fingerprint") if "critic" in stages else None,
        auc=fmean(later) if (later := [value for step, value in values.items() if step > 0]) else math.nan,
        auroc_siblings=mean_defined(history("train/steps/auroc_siblings").values()),
    )


def _recorded_values(stages: Iterable[TrackedRun], name: str) -> list[str]:
    """Values of a parameter that the stages recorded when they ran, perhaps as part of another run."""
    return sorted({stage.params.get(name, "") for stage in stages} - {""})


def mean_defined(values: Iterable[float]) -> float | None:
    """The mean of the finite values; None if there are none."""
    defined = [value for value in values if math.isfinite(value)]
    return fmean(defined) if defined else None


def _critic_seconds(run: TrackedRun, stage: TrackedRun | None) -> float | None:
    """Seconds of training the critic; 0 without a critic, None if unknown."""
    given = (value for name, value in run.params.items() if name.startswith("reward.") and name.endswith(".checkpoint"))
    if any(value not in ("null", FRESH) for value in given):
        return None
    return 0.0 if stage is None else stage.metrics.get(f"{SPENT}seconds")


def _sample_counts(rows: Sequence[Mapping[str, Any]]) -> list[tuple[int, int]] | None:
    """Parses ``3/8`` as (3, 8). The column is empty here if it exists only for another setting; returns None then."""
    written = [row.get("samples_correct") for row in rows]
    if None in written:
        return None
    parts = [str(one).partition("/") for one in written]
    return [(int(correct), int(samples)) for correct, _, samples in parts]

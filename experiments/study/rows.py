"""The rows of a study's table: of each arm its success, what it gains over the baseline, and both at equal compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from contrastive_reasoning.evaluation import (
    Estimate,
    interquartile_mean,
    nested_difference,
    nested_mean,
    probability_of_improvement,
)
from experiments.seeds import Difference, difference
from experiments.study.cost_curve import mean_curve
from experiments.study.results import ArmResult

RESAMPLES, SEED = 2000, 0
SHARES = (0.25, 0.5, 1.0)
"""Of the compute that all arms had."""
SAMPLED = "test/verifier/accuracy_sampled"
PASS_AT = "test/verifier/pass_at_"


@dataclass(frozen=True, kw_only=True)
class Gain:
    """An arm against the baseline."""

    nested: Estimate
    """Over seeds and problems."""
    over_seeds: Difference
    """Student's or Welch's, of the success of whole runs."""
    probability: Estimate
    """That a run of the arm succeeds more often than one of the baseline."""


@dataclass(frozen=True, kw_only=True)
class AtCost:
    """The validation curve over what was spent, the mean over seeds."""

    values: Sequence[float]
    """At each of ``SHARES`` of what all arms spent."""
    gain: Difference | None
    """Over seeds, of the last of ``values`` over the baseline's; None on the baseline's own row."""
    mean_height: float
    """Area under the curve, by what all arms spent."""
    to_baseline: float | None
    """What it cost to reach the value with which the baseline ended; None: it did not."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One arm."""

    name: str
    seeds: Sequence[str]
    success: Estimate
    gain: Gain | None
    """None on the baseline's own row."""
    interquartile: Estimate | None
    """Of the sampled shares of all seeds and problems; None where none were sampled."""
    tokens: AtCost | None
    seconds: AtCost | None
    pass_at: Mapping[str, float]
    """pass@k by k, the mean over seeds."""
    run_ids: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Reach:
    """How far the curves of all arms go, and where the baseline's ends."""

    cost: float
    baseline_end: float


def rows_of(arms: Sequence[ArmResult], metric: str) -> list[Row]:
    """A row for each arm; the first arm is the baseline."""
    tokens, seconds = (reach(arms, kind) for kind in ("over_tokens", "over_seconds"))
    return [
        Row(
            name=arm.name,
            seeds=list(arm.seeds),
            success=nested_mean(arm.table(metric), resamples=RESAMPLES, seed=SEED),
            gain=None if arm is arms[0] else gain_of(arm, arms[0], metric),
            interquartile=_interquartile(arm),
            tokens=at_cost(arm, arms[0], "over_tokens", tokens),
            seconds=at_cost(arm, arms[0], "over_seconds", seconds),
            pass_at=_pass_at(arm),
            run_ids=[run.run_id for run in arm.runs],
        )
        for arm in arms
    ]


def gain_of(arm: ArmResult, baseline: ArmResult, metric: str) -> Gain:
    """Paired by seed where both have the same ones, and always by problem."""
    ours, theirs = arm.table(metric), baseline.table(metric)
    same = list(arm.seeds) == list(baseline.seeds)
    whole, others = (table.mean(1, keepdim=True) for table in (ours, theirs))
    return Gain(
        nested=nested_difference(ours, theirs, same_seeds=same, resamples=RESAMPLES, seed=SEED),
        over_seeds=difference(_by_seed(arm, whole[:, 0].tolist()), _by_seed(baseline, others[:, 0].tolist())),
        probability=probability_of_improvement(whole, others, resamples=RESAMPLES, seed=SEED),
    )


def reach(arms: Sequence[ArmResult], kind: str) -> Reach | None:
    """None where the baseline's runs did not count this cost. Arms that did not are passed over."""
    curves = {arm.name: arm.curves(kind) for arm in arms}
    counted = [curve for found in curves.values() for curve in found]
    if not curves[arms[0].name]:
        return None
    ends = [curve.values[-1] for curve in curves[arms[0].name]]
    return Reach(cost=min(curve.last_cost for curve in counted), baseline_end=mean(ends))


def at_cost(arm: ArmResult, baseline: ArmResult, kind: str, reach: Reach | None) -> AtCost | None:
    """None where one of the arm's runs did not count this cost."""
    curves = arm.curves(kind)
    if not curves or reach is None:
        return None
    ends, theirs = ([curve.at(reach.cost) for curve in side.curves(kind)] for side in (arm, baseline))
    return AtCost(
        values=[mean(curve.at(share * reach.cost) for curve in curves) for share in SHARES],
        gain=None if arm is baseline else difference(_by_seed(arm, ends), _by_seed(baseline, theirs)),
        mean_height=mean(curve.mean_height(reach.cost) for curve in curves),
        to_baseline=mean_curve(curves).cost_of(reach.baseline_end),
    )


def _by_seed(arm: ArmResult, values: Sequence[float]) -> dict[str, float]:
    return dict(zip(arm.seeds, values, strict=True))


def _interquartile(arm: ArmResult) -> Estimate | None:
    if any(result.sampled is None for result in arm.seeds.values()):
        return None
    return interquartile_mean(arm.table(SAMPLED), resamples=RESAMPLES, seed=SEED)


def _pass_at(arm: ArmResult) -> dict[str, float]:
    names = [name for name in arm.runs[0].metrics if name.startswith(PASS_AT) and name.removeprefix(PASS_AT).isdigit()]
    return {
        name.removeprefix(PASS_AT): mean(run.metrics[name] for run in arm.runs)
        for name in names
        if all(name in run.metrics for run in arm.runs)
    }

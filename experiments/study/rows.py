"""The rows of a study's table: of each arm its success, what it gains over the baseline, and both at equal compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean

from contrastive_reasoning.evaluation import (
    Estimate,
    interquartile_mean,
    nested_difference,
    nested_mean,
    probability_of_improvement,
)
from experiments.comparison.seeds import Difference, compared, difference
from experiments.study.cost_curve import CostCurve, mean_curve
from experiments.study.elsewhere import BySetting, elsewhere_of
from experiments.study.results import ArmResult

RESAMPLES, SEED = 2000, 0
SHARES = (0.25, 0.5, 1.0)
"""Of the compute that both the arm and the baseline spent."""
SAMPLED = "test/verifier/accuracy_sampled"
PASS_AT = "test/verifier/pass_at_"


@dataclass(frozen=True, kw_only=True)
class Gain:
    """An arm against the baseline."""

    nested: Estimate
    """Over seeds and problems."""
    over_seeds: Difference
    """Student's or Welch's, of the success of whole runs."""
    probability: Estimate | None
    """That a run of the arm succeeds more often than one of the baseline; None where either side has one run."""
    by_seed: Mapping[str, float]
    """Of each seed that the baseline has too, the success of the one run minus that of the other."""
    seeds: tuple[Sequence[str], Sequence[str]]
    """Whose runs were compared: the arm's, and the baseline's."""


@dataclass(frozen=True, kw_only=True)
class AtCost:
    """The validation curve over what was spent, the mean over seeds."""

    cost: float
    """What the arm and the baseline both spent, in every seed: no other arm has a say in it."""
    values: Sequence[float]
    """At each of ``SHARES`` of ``cost``."""
    gain: Difference | None
    """Over seeds, of the last of ``values`` over the baseline's; None on the baseline's own row."""
    mean_height: float
    """Area under the curve up to ``cost``, by ``cost``."""
    height_gain: float | None
    """``mean_height`` minus the baseline's up to the same cost; None on the baseline's own row."""
    to_baseline: float | None
    """What it cost to reach the value with which the baseline's mean curve ends; None: it did not."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One arm."""

    name: str
    seeds: Sequence[str]
    success: Estimate
    gain: Gain | None
    """None on the baseline's own row, and where each seed has a start of its own and no seed is the baseline's too."""
    interquartile: Estimate | None
    """Of the sampled shares of all seeds and problems; None where none were sampled."""
    tokens: AtCost | None
    seconds: AtCost | None
    pass_at: Mapping[str, float]
    """pass@k by k, the mean over seeds."""
    auroc_siblings: Mapping[str, float]
    """By seed, how well the values of steps told siblings apart; empty for an arm that values no steps."""
    elsewhere: BySetting
    """Success in the suite's other settings."""
    run_ids: Sequence[str]


def rows_of(arms: Sequence[ArmResult], metric: str, *, start_per_seed: bool) -> list[Row]:
    """A row for each arm; the first arm is the baseline.

    Args:
        arms: that are compared.
        metric: what decides.
        start_per_seed: whether each seed begins from another policy: see :func:`experiments.comparison.seeds.compared`.
    """
    return [_row(arm, arms[0], metric, start_per_seed=start_per_seed) for arm in arms]


def _row(arm: ArmResult, baseline: ArmResult, metric: str, *, start_per_seed: bool) -> Row:
    own = arm is baseline
    ours, theirs = arm, baseline
    if not own:  # else the baseline has to stay the very one that it is
        seeds = compared(arm.seeds, baseline.seeds, start_per_seed=start_per_seed)
        ours, theirs = replace(arm, seeds=seeds[0]), replace(baseline, seeds=seeds[1])
    comparable = bool(ours.seeds)
    return Row(
        name=arm.name,
        seeds=list(arm.seeds),
        success=nested_mean(arm.table(metric), resamples=RESAMPLES, seed=SEED),
        gain=gain_of(ours, theirs, metric) if comparable and not own else None,
        interquartile=_interquartile(arm),
        tokens=at_cost(ours, theirs, "over_tokens") if comparable else None,
        seconds=at_cost(ours, theirs, "over_seconds") if comparable else None,
        pass_at=_pass_at(arm),
        auroc_siblings=_aurocs(arm),
        elsewhere=elsewhere_of({seed: result.run for seed, result in arm.seeds.items()}),
        run_ids=[run.run_id for run in arm.runs],
    )


def gain_of(arm: ArmResult, baseline: ArmResult, metric: str) -> Gain:
    """Paired by seed where both have the same ones, and always by problem."""
    ours, theirs = arm.table(metric), baseline.table(metric)
    same = list(arm.seeds) == list(baseline.seeds)
    whole, others = (table.mean(1, keepdim=True) for table in (ours, theirs))
    success, reference = _by_seed(arm, whole[:, 0].tolist()), _by_seed(baseline, others[:, 0].tolist())
    return Gain(
        nested=nested_difference(ours, theirs, same_seeds=same, resamples=RESAMPLES, seed=SEED),
        over_seeds=difference(success, reference),
        probability=(
            probability_of_improvement(whole, others, resamples=RESAMPLES, seed=SEED)
            if min(len(whole), len(others)) > 1
            else None
        ),
        by_seed={seed: value - reference[seed] for seed, value in success.items() if seed in reference},
        seeds=(list(arm.seeds), list(baseline.seeds)),
    )


def reach(curves: Sequence[CostCurve]) -> float:
    """How far all of the curves go."""
    return min(curve.last_cost for curve in curves)


def at_cost(arm: ArmResult, baseline: ArmResult, kind: str) -> AtCost | None:
    """None where one of the arm's runs, or of the baseline's, did not count this cost."""
    ours, theirs = arm.curves(kind), baseline.curves(kind)
    if not ours or not theirs:
        return None
    cost = reach([*ours, *theirs])
    ends, their_ends = ([curve.at(cost) for curve in curves] for curves in (ours, theirs))
    height, their_height = (mean(curve.mean_height(cost) for curve in curves) for curves in (ours, theirs))
    return AtCost(
        cost=cost,
        values=[mean(curve.at(share * cost) for curve in ours) for share in SHARES],
        gain=None if arm is baseline else difference(_by_seed(arm, ends), _by_seed(baseline, their_ends)),
        mean_height=height,
        height_gain=None if arm is baseline else height - their_height,
        to_baseline=mean_curve(ours).cost_of(mean_curve(theirs).values[-1]),
    )


def _by_seed(arm: ArmResult, values: Sequence[float]) -> dict[str, float]:
    return dict(zip(arm.seeds, values, strict=True))


def _aurocs(arm: ArmResult) -> dict[str, float]:
    found = {seed: result.auroc_siblings for seed, result in arm.seeds.items()}
    return {seed: value for seed, value in found.items() if value is not None}


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

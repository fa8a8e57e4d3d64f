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
from experiments.analysis.seeds import Difference, compared, difference
from experiments.study.elsewhere import BySetting, elsewhere_of
from experiments.study.equal_cost import RESAMPLES, SEED, AtCost, at_cost
from experiments.study.results import ArmResult

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
    pass_gain: Mapping[str, Estimate]
    """By k the difference to the baseline's, over seeds and problems; empty where ``gain`` is None."""
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
        start_per_seed: whether each seed begins from another policy: see :func:`experiments.analysis.seeds.compared`.
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
        pass_gain=_pass_gain(ours, theirs) if comparable and not own else {},
        auroc_siblings=_aurocs(arm),
        elsewhere=elsewhere_of({seed: result.run for seed, result in arm.seeds.items()}),
        run_ids=[run.run_id for run in arm.runs],
    )


def gain_of(arm: ArmResult, baseline: ArmResult, metric: str) -> Gain:
    """Paired by seed where both have the same ones, and always by problem."""
    ours, theirs = arm.table(metric), baseline.table(metric)
    same = list(arm.seeds) == list(baseline.seeds)
    whole, others = (table.mean(1, keepdim=True) for table in (ours, theirs))
    success, reference = arm.by_seed(whole[:, 0].tolist()), baseline.by_seed(others[:, 0].tolist())
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


def _aurocs(arm: ArmResult) -> dict[str, float]:
    found = {seed: result.auroc_siblings for seed, result in arm.seeds.items()}
    return {seed: value for seed, value in found.items() if value is not None}


def _interquartile(arm: ArmResult) -> Estimate | None:
    if not arm.is_sampled:
        return None
    return interquartile_mean(arm.table(SAMPLED), resamples=RESAMPLES, seed=SEED)


def _pass_at(arm: ArmResult) -> dict[str, float]:
    names = [name for name in arm.runs[0].metrics if name.startswith(PASS_AT) and name.removeprefix(PASS_AT).isdigit()]
    return {
        name.removeprefix(PASS_AT): mean(run.metrics[name] for run in arm.runs)
        for name in names
        if all(name in run.metrics for run in arm.runs)
    }


def _pass_gain(arm: ArmResult, baseline: ArmResult) -> dict[str, Estimate]:
    """From each problem's own estimate of pass@k; for the k that both have."""
    if not (arm.is_sampled and baseline.is_sampled):
        return {}
    same = list(arm.seeds) == list(baseline.seeds)
    return {
        k: nested_difference(
            arm.pass_table(int(k)), baseline.pass_table(int(k)), same_seeds=same, resamples=RESAMPLES, seed=SEED
        )
        for k in _pass_at(arm)
        if k in _pass_at(baseline)
    }

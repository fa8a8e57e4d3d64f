"""The rows of a study's table: of each arm its success, its gain over the baseline, both at equal cost; the verdict.

A gain is significant where both intervals, the nested bootstrap's and Student's or Welch's over seeds, lie on one side
of zero: with few seeds either alone contains the truth too rarely (``contrastive_reasoning.evaluation.nested_mean``).
"""

from __future__ import annotations

import re
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
from experiments.analysis.equal_cost import RESAMPLES, SEED, AtCost, at_cost
from experiments.analysis.evaluation_sets import SAMPLED
from experiments.analysis.statistics import Difference, difference, seeds_to_compare
from experiments.analysis.study_results import ArmResult
from experiments.studies.plan import Study
from experiments.table import with_sign

PASS_AT = re.compile(r"test/verifier/pass_at_(\d+)")
OTHER_SETTING = re.compile(r"test/([^/]+)/verifier/accuracy")
DRAWS = {"resamples": RESAMPLES, "seed": SEED}


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

    @property
    def side(self) -> int:
        """1 where the arm is above the baseline by both intervals, -1 where below; 0: not significant."""
        ends = (self.nested.low, self.nested.high), (self.over_seeds.low, self.over_seeds.high)
        if all(low > 0 for low, _ in ends):
            return 1
        return -1 if all(high < 0 for _, high in ends) else 0


@dataclass(frozen=True, kw_only=True)
class ArmRow:
    """One arm."""

    name: str
    seeds: Sequence[str]
    success: Estimate
    gain: Gain | None
    """None on the baseline's own row, and where each seed has its own start and none is the baseline's too."""
    interquartile: Estimate | None
    """Of the sampled shares of all seeds and problems; None where none were sampled."""
    tokens: AtCost | None
    seconds: AtCost | None
    pass_at: Mapping[str, float]
    pass_gain: Mapping[str, Estimate]
    """By k the mean over seeds, and its difference to the baseline's; empty where ``gain`` is None."""
    auroc_siblings: Mapping[str, float]
    """By seed, how well the values of steps ranked siblings; empty for an arm that values no steps."""
    other_settings: Mapping[str, Mapping[str, float]]
    """Greedy success by setting and seed, in the suite's settings beside ``main`` that all runs were tested in."""
    run_ids: Sequence[str]


def rows_of(arms: Sequence[ArmResult], metric: str, *, start_per_seed: bool) -> list[ArmRow]:
    """A row for each arm by the metric that decides; the first arm is the baseline.

    ``start_per_seed``: whether each seed begins from another policy, see :func:`seeds_to_compare`.
    """
    return [_row(arm, arms[0], metric, start_per_seed=start_per_seed) for arm in arms]


def _row(arm: ArmResult, baseline: ArmResult, metric: str, *, start_per_seed: bool) -> ArmRow:
    own = arm is baseline
    ours, theirs = seeds_to_compare(arm.seeds, baseline.seeds, start_per_seed=start_per_seed)
    left, right = replace(arm, seeds=ours), replace(baseline, seeds=theirs)
    compared, sampled = bool(ours) and not own, arm.is_sampled
    aurocs = {seed: result.auroc_siblings for seed, result in arm.seeds.items()}
    pass_at = {k: mean(values) for k, values in _shared_metrics(arm, PASS_AT).items()}
    of_both = pass_at.keys() & _shared_metrics(right, PASS_AT) if compared and sampled and right.is_sampled else set()
    same = list(ours) == list(theirs)
    return ArmRow(
        name=arm.name,
        seeds=list(arm.seeds),
        success=nested_mean(arm.scores(metric), **DRAWS),
        gain=gain_of(left, right, metric) if compared else None,
        interquartile=interquartile_mean(arm.scores(SAMPLED), **DRAWS) if sampled else None,
        tokens=at_cost(left.curves("tokens"), right.curves("tokens"), own=own),
        seconds=at_cost(left.curves("seconds"), right.curves("seconds"), own=own),
        pass_at=pass_at,
        pass_gain={
            k: nested_difference(left.pass_at(int(k)), right.pass_at(int(k)), same_seeds=same, **DRAWS)
            for k in pass_at
            if k in of_both
        },
        auroc_siblings={seed: value for seed, value in aurocs.items() if value is not None},
        other_settings={
            setting: dict(zip(arm.seeds, values, strict=True))
            for setting, values in sorted(_shared_metrics(arm, OTHER_SETTING).items())
        },
        run_ids=[run.run_id for run in arm.runs],
    )


def _shared_metrics(arm: ArmResult, pattern: re.Pattern[str]) -> dict[str, list[float]]:
    """By what the group of ``pattern`` is in their names, the metrics that all runs have, in the order of seeds."""
    first, runs = arm.runs[0], arm.runs
    named = {match[1]: name for name in first.metrics if (match := pattern.fullmatch(name))}
    shared = {key: name for key, name in named.items() if all(name in run.metrics for run in runs)}
    return {key: [run.metrics[name] for run in runs] for key, name in shared.items()}


def gain_of(arm: ArmResult, baseline: ArmResult, metric: str) -> Gain:
    """Paired by seed where both have the same ones, and always by problem."""
    ours, theirs = arm.scores(metric), baseline.scores(metric)
    whole, others = (scores.mean(1, keepdim=True) for scores in (ours, theirs))
    success = dict(zip(arm.seeds, whole[:, 0].tolist(), strict=True))
    reference = dict(zip(baseline.seeds, others[:, 0].tolist(), strict=True))
    several = min(len(success), len(reference)) > 1
    return Gain(
        nested=nested_difference(ours, theirs, same_seeds=list(success) == list(reference), **DRAWS),
        over_seeds=difference(success, reference),
        probability=probability_of_improvement(whole, others, **DRAWS) if several else None,
        by_seed={seed: value - reference[seed] for seed, value in success.items() if seed in reference},
        seeds=(list(success), list(reference)),
    )


def verdict(study: Study, rows: Sequence[ArmRow]) -> str:
    """A few sentences on the primary arm; at equal cost beside it, which was not fixed beforehand.

    Arms with a calibrated value or a head of CLIPO's have some batches more, from which these alone learn
    (``datamodules/reasoning_prompts.py``).
    """
    arm, baseline, metric = study.primary.arm, study.primary.baseline, study.primary.metric
    what = f"Primary: {metric} of {arm} minus that of {baseline}, after as many batches that teach the policy"
    row = next((row for row in rows if row.name == arm), None)
    if row is None:
        return f"{what}: no seed of {arm} has finished yet."
    if row.gain is None:
        return f"{what}: no seed of {arm} has finished that {baseline} has too."
    done = {other.name: len(other.seeds) for other in rows}
    planned = {name: study.arms[name].seeds for name in (arm, baseline)}
    early = [f"{done[name]} of {most} seeds of {name}" for name, most in planned.items() if done[name] < most]
    so_far = f" So far {' and '.join(early)}." if early else ""
    equal = "; ".join(_at_equal(cost, at) for cost, at in (("tokens", row.tokens), ("seconds", row.seconds)))
    return f"{what}: {_evidence(row.gain)} By {study.curve}: {equal}. {_significance(row.gain)}{so_far}"


def _evidence(gain: Gain) -> str:
    nested = f"{with_interval(gain.nested, signed=True)} points"
    ours, theirs = gain.seeds
    if len(ours) == len(theirs) == 1:
        alone = "one seed" if ours == theirs else f"seed {ours[0]} against seed {theirs[0]}"
        return f"{nested} over problems alone ({alone})."
    if 1 in (len(ours), len(theirs)):
        return f"{nested} over problems and the seeds of one side alone ({len(ours)} against {len(theirs)})."
    how = " (Welch's)" if gain.over_seeds.mark else ""
    return f"{nested} over seeds and problems, {gain.over_seeds.text('.1f', factor=100)} over seeds{how}."


def _at_equal(cost: str, at: AtCost | None) -> str:
    """The validation curve's difference over seeds: not the primary metric, and on other problems."""
    if at is None or at.gain is None:
        return f"at equal {cost} not known, as not all runs counted them"
    alone = " (one seed)" if at.gain.n == 1 else ""
    return f"at equal {cost} ({at.cost:,.0f}) {at.gain.text('.1f', factor=100)}{alone}"


def _significance(gain: Gain) -> str:
    if gain.over_seeds.n == 1:
        return "Not significant: one seed does not show the spread between seeds."
    if gain.side == 0:
        return "Not significant: a 95% interval contains zero."
    return f"Significant: both 95% intervals lie {'above' if gain.side > 0 else 'below'} zero."


def with_interval(estimate: Estimate, *, signed: bool = False, decimals: int = 1) -> str:
    """``41.2 [38.0, 44.1]``, in percent."""
    form = f".{decimals}f"
    value, low, high = (with_sign(100 * n, form) if signed else f"{100 * n:z{form}}" for n in estimate)
    return f"{value} [{low}, {high}]"

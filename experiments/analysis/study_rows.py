"""The rows of a study's table: success of each arm, its gain over the baseline, both at equal cost; verdict and power.

A gain is significant if both intervals lie on one side of zero: the nested bootstrap's, and Student's or Welch's over
seeds. With few seeds either alone contains the true value too rarely
(``contrastive_reasoning.evaluation.nested_mean``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean, stdev

from contrastive_reasoning.evaluation import (
    Estimate,
    interquartile_mean,
    nested_difference,
    nested_mean,
    probability_of_improvement,
)
from experiments.analysis.equal_cost import RESAMPLES, SEED, AtCost, at_cost
from experiments.analysis.evaluation_sets import SAMPLED
from experiments.analysis.statistics import Difference, detectable_difference, difference, seeds_to_compare
from experiments.analysis.study_results import ArmResult
from experiments.jobs.study_plan import AUC, Study
from experiments.table import with_sign

PASS_AT = re.compile(r"test/verifier/pass_at_(\d+)")
DRAWS = {"resamples": RESAMPLES, "seed": SEED}
ASSUMED_SPREAD, ASSUMED_SPREAD_OF_AUC = 0.03, 0.02
"""Assumed standard deviation of the pairs' differences, before any are observed: of final success, and of AUC."""


@dataclass(frozen=True, kw_only=True)
class Gain:
    """Success of an arm minus that of the baseline."""

    nested: Estimate
    """With a nested bootstrap interval over seeds and problems."""
    over_seeds: Difference
    """With Student's or Welch's interval, from the success of whole runs."""
    probability: Estimate | None
    """Probability that a run of the arm succeeds more often than one of the baseline; None if a side has one run."""
    by_seed: Mapping[str, float]
    """For each seed that both have, the success of the arm's run minus that of the baseline's."""
    seeds: tuple[Sequence[str], Sequence[str]]
    """The compared seeds of the arm, and those of the baseline."""

    @property
    def side(self) -> int:
        """1 if the arm is above the baseline by both intervals, -1 if below, 0 if not significant."""
        ends = (self.nested.low, self.nested.high), (self.over_seeds.low, self.over_seeds.high)
        if all(low > 0 for low, _ in ends):
            return 1
        return -1 if all(high < 0 for _, high in ends) else 0


@dataclass(frozen=True, kw_only=True)
class ArmRow:
    """One arm."""

    arm: ArmResult
    success: Estimate
    gain: Gain | None
    """None for the baseline itself, and if each seed has its own start and no seed is shared with the baseline."""
    interquartile: Estimate | None
    """Interquartile mean of the sampled shares of all seeds and problems; None without samples."""
    tokens: AtCost | None
    seconds: AtCost | None
    pass_at: Mapping[str, float]
    pass_gain: Mapping[str, Estimate]
    """k → mean over seeds (``pass_at``), and its difference to the baseline's (``pass_gain``), which is empty if
    ``gain`` is None."""

    @property
    def name(self) -> str:
        return self.arm.name


def rows_of(arms: Sequence[ArmResult], metric: str, *, start_per_seed: bool) -> list[ArmRow]:
    """A row for each arm by the primary metric; the first arm is the baseline.

    ``start_per_seed``: whether each seed begins from its own policy, see :func:`seeds_to_compare`.
    """
    return [_row(arm, arms[0], metric, start_per_seed=start_per_seed) for arm in arms]


def _row(arm: ArmResult, baseline: ArmResult, metric: str, *, start_per_seed: bool) -> ArmRow:
    own = arm is baseline
    ours, theirs = seeds_to_compare(arm.seeds, baseline.seeds, start_per_seed=start_per_seed)
    left, right = replace(arm, seeds=ours), replace(baseline, seeds=theirs)
    compared, sampled = bool(ours) and not own, arm.is_sampled
    pass_at = {k: mean(by_seed.values()) for k, by_seed in arm.shared_metrics(PASS_AT).items()}
    of_both = right.shared_metrics(PASS_AT) if compared and sampled and right.is_sampled else {}
    same = list(ours) == list(theirs)
    return ArmRow(
        arm=arm,
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
    )


def gain_of(arm: ArmResult, baseline: ArmResult, metric: str) -> Gain:
    """The gain of ``arm`` over ``baseline``, paired by seed if both have the same seeds, and always by problem."""
    ours, theirs = arm.scores(metric), baseline.scores(metric)
    whole, others = (scores.mean(1, keepdim=True) for scores in (ours, theirs))
    success, reference = arm.by_seed(metric), baseline.by_seed(metric)
    several = min(len(success), len(reference)) > 1
    return Gain(
        nested=nested_difference(ours, theirs, same_seeds=list(success) == list(reference), **DRAWS),
        over_seeds=difference(success, reference),
        probability=probability_of_improvement(whole, others, **DRAWS) if several else None,
        by_seed={seed: value - reference[seed] for seed, value in success.items() if seed in reference},
        seeds=(list(success), list(reference)),
    )


def verdict(study: Study, rows: Sequence[ArmRow]) -> str:
    """A few sentences on the primary arm, and on the comparison at equal cost, which was not fixed in advance.

    Arms with a calibrated value or CLIPO's head have some extra batches, from which only that value or head learns
    (``datamodules/reasoning_prompts.py``).
    """
    arm, baseline = study.primary.arm, study.primary.baseline
    what = (
        f"Primary: {study.measure} of {arm} minus that of {baseline}, after equally many batches that train the policy"
    )
    row = next((row for row in rows if row.name == arm), None)
    if row is None:
        return f"{what}: no seed of {arm} has finished yet."
    if row.gain is None:
        return f"{what}: no seed of {arm} has finished that {baseline} has too."
    done = {other.name: len(other.arm.seeds) for other in rows}
    planned = {name: study.arms[name].seeds for name in (arm, baseline)}
    early = [f"{done[name]} of {most} seeds of {name}" for name, most in planned.items() if done[name] < most]
    so_far = f" So far {' and '.join(early)}." if early else ""
    equal = "; ".join(_at_equal(cost, at) for cost, at in (("tokens", row.tokens), ("seconds", row.seconds)))
    evidence = _evidence(row.gain, of_problems=study.primary.metric != AUC)
    return f"{what}: {evidence} By {study.curve}: {equal}. {_significance(row.gain)}{so_far}"


def _evidence(gain: Gain, *, of_problems: bool) -> str:
    ours, theirs = gain.seeds
    how = " (Welch's)" if gain.over_seeds.mark else ""
    if not of_problems:  # a run has one number, so there is nothing to draw within a seed
        over = f"{len(ours)} against {len(theirs)}" if how else f"{len(gain.by_seed)}"
        return f"{gain.over_seeds.text('.1f', factor=100)} points over {over} seeds{how}."
    nested = f"{with_interval(gain.nested, signed=True)} points"
    if len(ours) == len(theirs) == 1:
        alone = "one seed" if ours == theirs else f"seed {ours[0]} against seed {theirs[0]}"
        return f"{nested} over problems alone ({alone})."
    if 1 in (len(ours), len(theirs)):
        return f"{nested} over problems and the seeds of one side alone ({len(ours)} against {len(theirs)})."
    return f"{nested} over seeds and problems, {gain.over_seeds.text('.1f', factor=100)} over seeds{how}."


def _at_equal(cost: str, at: AtCost | None) -> str:
    """The validation curve's difference over seeds; it is not the primary metric, and has other problems."""
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


def power_sentence(study: Study, gain: Gain | None = None) -> str:
    """A sentence on the difference that the study detects with all its pairs.

    With ``gain``, that of the primary arm, it also gives the difference at the observed spread.
    """
    planned = min(study.arms[arm].seeds for arm in (study.primary.arm, study.primary.baseline))
    if planned < 2:
        return "One pair shows no spread, and so detects no difference."
    spread = ASSUMED_SPREAD_OF_AUC if study.primary.metric == AUC else ASSUMED_SPREAD
    what = f"What it can detect (paired t, two-sided 5%, power 80%): {_detects(planned, spread)}, assumed"
    differences = [] if gain is None else [*gain.by_seed.values()]
    pairs = len(differences)
    if gain is None or gain.over_seeds.method != "paired" or pairs < 2 or not all(map(math.isfinite, differences)):
        return f"{what}."
    return f"{what}; {_detects(pairs, stdev(differences))}, observed."


def _detects(pairs: int, spread: float) -> str:
    found = 100 * detectable_difference(spread, pairs)
    return f"{pairs} pairs detect {found:.1f} points at a spread of {100 * spread:.1f} points between them"


def with_interval(estimate: Estimate, *, signed: bool = False, decimals: int = 1) -> str:
    """``41.2 [38.0, 44.1]``, in percent."""
    form = f".{decimals}f"
    value, low, high = (with_sign(100 * n, form) if signed else f"{100 * n:z{form}}" for n in estimate)
    return f"{value} [{low}, {high}]"

"""Controls for step credit: rewards whose values of states are constant, random, shuffled, or wrong at a known rate.

They show what a per-step advantage gains without a critic. A random number depends on its key (seed, state, target)
alone: a state has the same value in every process, in every batch and at every look-up.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TypeVar

from contrastive_reasoning.distributed import gather, share, unshare
from contrastive_reasoning.ranges import within
from contrastive_reasoning.rewards.base import Credit, Reward, refuse_adding, refuse_learning
from contrastive_reasoning.rewards.calibrated import CalibratedReward, depths_of
from contrastive_reasoning.rewards.oracle import OracleReward, target_of
from contrastive_reasoning.rewards.step_metrics import Judged, step_metrics
from contrastive_reasoning.rewards.step_values import FINISHED, StateReward, mean, start_steps
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.tasks.base import Problem, Step

T = TypeVar("T")
BITS = 53
"""The precision of a float in bits: every draw is exact and less than 1."""


@dataclass(kw_only=True, eq=False)
class ConstantValueReward(StateReward):
    """``outcome`` plus ``weight`` times ``value`` if there is a legal step: all states have the same value.

    ``Survival`` and ``Potential`` use the verdict at the end, so with constant values they still credit the last move
    by it. Their baseline is ``value`` and not this policy's success, so credit at the last move is off by a constant:
    ``ConstantLogit`` corrects that. Countdown only.

    Raises ValueError for a value outside [0, 1].
    """

    value: float

    part = "constant"

    def __post_init__(self) -> None:
        super().__post_init__()
        within("[0, 1]", value=self.value)

    def label(self, problem: Problem, state: Sequence[int]) -> float:
        return self.value


class ConstantLogit(OracleReward):
    """A source for ``CalibratedReward`` that tells no states apart: all have the logit 0. Countdown only.

    Each depth has a curve of its own, so after calibration a state is worth this policy's mean success at its depth.
    The effect of a critic is the gain of its arm over this one.
    """

    part = "constant"

    def label(self, problem: Problem, state: Sequence[int]) -> float:
        return 0.5

    def logit(self, problem: Problem, state: Sequence[int]) -> float:
        return 0.0


@dataclass(kw_only=True, eq=False)
class RandomPotentialReward(StateReward):
    """``outcome`` plus ``weight`` times the mean of random values in [0, 1), one for each (seed, state, target).

    It is still a potential, so it must not help the policy and, with λ = 1, must not bias it. Countdown only.
    """

    seed: int

    part = "random_potential"

    def label(self, problem: Problem, state: Sequence[int]) -> float:
        return fixed_draw("random_potential", self.seed, sorted(state), target_of(problem))


@dataclass(kw_only=True, eq=False)
class FlippedOracleReward(OracleReward):
    """``OracleReward`` whose label of a state is wrong with probability ``flip``. Countdown only.

    It measures the benefit of a step reward of known accuracy. The label is wrong if the draw of (seed, state, target)
    is below ``flip``, so all completions share the same errors, and a larger ``flip`` keeps the errors of a smaller
    one. The state before the first step is labelled like any other.

    Raises ValueError for a ``flip`` outside [0, 1].
    """

    flip: float
    seed: int

    part = "oracle_flipped"

    def __post_init__(self) -> None:
        super().__post_init__()
        within("[0, 1]", flip=self.flip)

    def label(self, problem: Problem, state: Sequence[int]) -> float:
        """Returns 1 if the target can be reached, else 0; with probability ``flip`` the opposite."""
        truth = super().label(problem, state)
        wrong = fixed_draw("oracle_flipped", self.seed, sorted(state), target_of(problem)) < self.flip
        return 1.0 - truth if wrong else truth


@dataclass(kw_only=True, eq=False)
class ShuffledReward:
    """``reward`` with its step values shuffled within each depth, plus ``weight`` times their mean in the outcome.

    The shuffle keeps the distribution of the values at each depth and loses the assignment to steps:

        depth 3     0.9  0.1  0.4        0.4  0.9  0.1      one rollout's value may come from any rollout of the batch
        depth 2     0.8  0.0        →    0.0  0.8
        starts      0.7  0.2             0.2  0.7           those of a problem's rollouts, moved among the problems

    The order is drawn from the seed and the batch's texts, so a resumed run shuffles in the same way. Values move
    between the rollouts of all ranks. The metrics ``steps/…``, which a trust gate reads, describe the shuffled values.

    Raises ValueError if the reward adds its values to the outcome itself, or, when called, if it values no steps.
    """

    reward: Reward
    """It values steps. Its own weight must be 0, because what it adds to the outcome is not shuffled."""
    weight: float
    seed: int

    values_steps = True

    def __post_init__(self) -> None:
        refuse_learning("ShuffledReward", self.reward)
        refuse_adding("ShuffledReward", self.reward)

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        credit = self.reward(rollouts)
        if credit.steps is None:
            raise ValueError(f"a reward without step values cannot be shuffled: {credit.named}")
        size = rollouts.group_size
        rng = _rng_of(self.seed, rollouts)
        values = shuffled_over_ranks(
            [[step.depth for step in row] for row in credit.steps],
            [[step.value for step in row] for row in credit.steps],
            size,
            rng,
        )
        steps = [
            [step._replace(value=value) for step, value in zip(row, new, strict=True)]
            for row, new in zip(credit.steps, values, strict=True)
        ]
        starts = credit.starts
        if starts is not None:
            groups = _groups(_of_all_ranks(starts, size), size)
            rng.shuffle(groups)
            starts = _of_this_rank([value for group in groups for value in group], size)
        part = credit.outcome.new_tensor([mean([step.value for step in row]) for row in steps])
        judged = [[Judged(step.value, step.depth, step.depth == FINISHED) for step in row] for row in steps]
        kept = {name: value for name, value in credit.metrics.items() if not name.startswith("steps/")}
        metrics = {**kept, **step_metrics(judged, steps, credit.verdicts, size)}
        shuffled = credit.plus("shuffled", part, weight=self.weight)
        return replace(shuffled, steps=steps, starts=starts, metrics=metrics)


@dataclass(kw_only=True, eq=False)
class ShuffledCalibratedReward(CalibratedReward):
    """``CalibratedReward`` with its values shuffled within each depth, as in ``ShuffledReward``: a placebo.

    The shuffle comes after calibration. So the values keep the distribution and the mean of this policy's chances at
    each depth, and lose the assignment to states. The curves learn from the states' own logits. The start values are
    permuted among the problems.
    """

    seed: int

    def chances(
        self,
        rollouts: RolloutBatch,
        steps: Sequence[Sequence[Step]],
        logits: Sequence[Sequence[float]],
        starts: Sequence[float] | None,
    ) -> tuple[list[list[float]], list[float] | None]:
        values, of_starts = super().chances(rollouts, steps, logits, starts)
        rng, depths = _rng_of(self.seed, rollouts), depths_of(steps, start_steps(rollouts))
        values = shuffled_over_ranks(depths, values, rollouts.group_size, rng)
        if of_starts is not None:
            rng.shuffle(of_all := unshare(gather(of_starts)))
            of_starts = share(of_all)
        return values, of_starts


def shuffled_over_ranks(
    depths: Sequence[Sequence[int]], values: Sequence[Sequence[float]], group_size: int, rng: random.Random
) -> list[list[float]]:
    """Returns this rank's rows of values after those of all ranks were permuted within each depth."""
    shuffled = shuffle_within_depth(_of_all_ranks(depths, group_size), _of_all_ranks(values, group_size), rng)
    return _of_this_rank(shuffled, group_size)


def shuffle_within_depth(
    depths: Sequence[Sequence[int]], values: Sequence[Sequence[float]], rng: random.Random
) -> list[list[float]]:
    """Returns the values, row by row as given, permuted among all values of equal depth."""
    at: dict[int, list[float]] = {}
    for row, own in zip(depths, values, strict=True):
        for depth, value in zip(row, own, strict=True):
            at.setdefault(depth, []).append(value)
    for depth in sorted(at):
        rng.shuffle(at[depth])
    return [[at[depth].pop() for depth in row] for row in depths]


def _rng_of(seed: int, rollouts: RolloutBatch) -> random.Random:
    """Returns the same generator on every rank and after a resume: a function of the seed and the batch's texts."""
    return random.Random(fixed_integer("shuffled", seed, _of_all_ranks(rollouts.texts, rollouts.group_size)))


def fixed_draw(*key: str | int | list[int] | list[str]) -> float:
    """Returns a number uniform in [0, 1), a function of the key alone."""
    return fixed_integer(*key) / 2**BITS


def fixed_integer(*key: str | int | list[int] | list[str]) -> int:
    """Returns an integer uniform in 0 … 2^53 − 1, a function of the key alone."""
    # json escapes the lone surrogates that a completion's broken bytes become; encode() alone raises for them
    digest = blake2b(json.dumps(key).encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> (64 - BITS)


def _of_all_ranks(rows: Sequence[T], group_size: int) -> list[T]:
    """Returns the rows of every rank as whole groups in the order of the data."""
    return [row for group in unshare(gather(_groups(rows, group_size))) for row in group]


def _of_this_rank(rows: Sequence[T], group_size: int) -> list[T]:
    return [row for group in share(_groups(rows, group_size)) for row in group]


def _groups(rows: Sequence[T], group_size: int) -> list[Sequence[T]]:
    return [rows[first : first + group_size] for first in range(0, len(rows), group_size)]

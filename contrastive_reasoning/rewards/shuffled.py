"""Step values dealt out anew: the same numbers at the same depth, on other steps of the batch.

A placebo for step credit that keeps what the true values have at each depth and loses which step has which:

    depth 3     0.9  0.1  0.4        0.4  0.9  0.1      one rollout's value may come from any rollout of the batch
    depth 2     0.8  0.0        →    0.0  0.8
    starts      0.7  0.2             0.2  0.7           one number for each problem, moved among the problems

The order is drawn from the seed and what the batch holds, so a resumed run deals the same; values move between the
rollouts of all ranks. What is told of the values
(``steps/…``, which a trust gate reads) is told of the shuffled ones.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from contrastive_reasoning.distributed import gather, share, unshare
from contrastive_reasoning.rewards.base import Credit, Reward, StepCredit, refuse_adding, refuse_learning
from contrastive_reasoning.rewards.fixed_draw import fixed_integer
from contrastive_reasoning.rewards.step_metrics import FINISHED, Judged, judged_anew
from contrastive_reasoning.rollout.batch import RolloutBatch

T = TypeVar("T")


class ShuffledReward:
    """``reward`` with its step values shuffled, ``weight`` times their mean in the outcome.

    Args:
        reward: values steps. Its own weight must be 0: what it adds to the outcome is not shuffled.
        weight: of the mean shuffled value in the outcome.
        seed: of the order.

    Raises:
        ValueError: where the reward adds its values to the outcome itself, or, when called, values no steps.
    """

    values_steps = True

    def __init__(self, *, reward: Reward, weight: float, seed: int) -> None:
        refuse_learning("ShuffledReward", reward)
        refuse_adding("ShuffledReward", reward)
        self.reward = reward
        self.weight = weight
        self.seed = seed

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        credit = self.reward(rollouts)
        if credit.steps is None:
            raise ValueError(f"a reward without step values cannot be shuffled: {', '.join(credit.parts) or 'nothing'}")
        size = rollouts.group_size
        drawn = random.Random(fixed_integer("shuffled", self.seed, _of_all(rollouts.texts, size)))
        steps = _own(shuffled_within_depth(_of_all(credit.steps, size), drawn), size)
        starts = credit.starts
        if starts is not None:
            starts = _own(_among_problems(_of_all(starts, size), size, drawn), size)
        part = credit.outcome.new_tensor([_mean([step.value for step in row]) for row in steps])
        dealt = replace(
            credit,
            outcome=credit.outcome + self.weight * part,
            parts={**credit.parts, "shuffled": part},
            steps=steps,
            starts=starts,
        )
        judged = [[Judged(step.value, step.depth, step.depth == FINISHED) for step in row] for row in steps]
        return judged_anew(dealt, judged, size)


def shuffled_within_depth(steps: Sequence[Sequence[StepCredit]], drawn: random.Random) -> list[list[StepCredit]]:
    """The values of all steps of one depth in another order; all else of a step stays."""
    values: dict[int, list[float]] = {}
    for step in (step for row in steps for step in row):
        values.setdefault(step.depth, []).append(step.value)
    for depth in sorted(values):
        drawn.shuffle(values[depth])
    return [[step._replace(value=values[step.depth].pop()) for step in row] for row in steps]


def _of_all(rows: Sequence[T], group_size: int) -> list[T]:
    """Those of every rank, whole groups in the data's order."""
    return [row for group in unshare(gather(_groups(rows, group_size))) for row in group]


def _own(rows: Sequence[T], group_size: int) -> list[T]:
    """This rank's of them."""
    return [row for group in share(_groups(rows, group_size)) for row in group]


def _groups(rows: Sequence[T], group_size: int) -> list[Sequence[T]]:
    return [rows[first : first + group_size] for first in range(0, len(rows), group_size)]


def _among_problems(starts: Sequence[float], group_size: int, drawn: random.Random) -> list[float]:
    problems = list(starts[::group_size])
    drawn.shuffle(problems)
    return [value for value in problems for _ in range(group_size)]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0

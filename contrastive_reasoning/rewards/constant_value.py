"""All states are worth the same: what a per-step advantage gives by itself, before any value has told it anything.

A control for step credit. ``Survival`` and ``Potential`` know the verdict at the end, so with these values they still
credit the last move by it; what a critic adds is what its arm gains over this one.
"""

from __future__ import annotations

from collections.abc import Sequence

from contrastive_reasoning.rewards.base import Credit, Reward, refuse_learning
from contrastive_reasoning.rewards.shaping import illegal_steps, shaped, state_values
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.tasks.base import Problem, Task


class ConstantValueReward:
    """``outcome`` plus ``weight`` times ``value`` where there is a legal step. Countdown only.

    Raises:
        ValueError: for a value outside [0, 1].
    """

    values_steps = True
    values_starts = True

    def __init__(self, *, outcome: Reward, task: Task, weight: float, value: float) -> None:
        refuse_learning("ConstantValueReward", outcome)
        if not 0 <= value <= 1:
            raise ValueError(f"value must lie in [0, 1], got {value}")
        self.outcome = outcome
        self.task = task
        self.weight = weight
        self.value = value

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        values, starts = state_values(self.task, rollouts, self.constant)
        return shaped(
            self.outcome(rollouts),
            rollouts,
            values,
            illegal=illegal_steps(self.task, rollouts),
            name="constant",
            weight=self.weight,
            starts=starts,
        )

    def constant(self, problem: Problem, state: Sequence[int]) -> float:
        return self.value

"""A value of states that knows nothing: uniform in [0, 1), the same for the same (seed, state, target).

A placebo for step credit. It is a potential all the same, so it must neither help nor, with λ = 1, bias the policy.
"""

from __future__ import annotations

from collections.abc import Sequence

from contrastive_reasoning.rewards.base import Credit, Reward, refuse_learning
from contrastive_reasoning.rewards.fixed_draw import fixed_draw
from contrastive_reasoning.rewards.oracle import target_of
from contrastive_reasoning.rewards.shaping import illegal_steps, shaped, state_values
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.tasks.base import Problem, Task


class RandomPotentialReward:
    """``outcome`` plus ``weight`` times the mean of what was drawn for the legal steps. Countdown only."""

    values_steps = True
    values_starts = True

    def __init__(self, *, outcome: Reward, task: Task, weight: float, seed: int) -> None:
        refuse_learning("RandomPotentialReward", outcome)
        self.outcome = outcome
        self.task = task
        self.weight = weight
        self.seed = seed

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        values, starts = state_values(self.task, rollouts, self.drawn)
        return shaped(
            self.outcome(rollouts),
            rollouts,
            values,
            illegal=illegal_steps(self.task, rollouts),
            name="random_potential",
            weight=self.weight,
            starts=starts,
        )

    def drawn(self, problem: Problem, state: Sequence[int]) -> float:
        return fixed_draw("random_potential", self.seed, sorted(state), target_of(problem))

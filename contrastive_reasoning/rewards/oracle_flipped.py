"""The exact oracle with some of its answers turned round: what a step reward of known accuracy is good for.

The answer on a state is the wrong one where a draw that stands still for (seed, state, target) is below ``flip``. So
asking again gets the same answer, all completions see the same mistakes, and a larger ``flip`` keeps the mistakes of a
smaller one. The state before the first step is asked about like any other.
"""

from __future__ import annotations

from collections.abc import Sequence

from contrastive_reasoning.rewards.base import Credit, Reward, refuse_learning
from contrastive_reasoning.rewards.fixed_draw import fixed_draw
from contrastive_reasoning.rewards.oracle import target_in_reach, target_of
from contrastive_reasoning.rewards.shaping import illegal_steps, shaped, state_values
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.tasks.base import Problem, Task


class FlippedOracleReward:
    """``OracleReward`` whose label of a state is the wrong one with probability ``flip``. Countdown only."""

    values_steps = True
    values_starts = True

    def __init__(self, *, outcome: Reward, task: Task, weight: float, flip: float, seed: int) -> None:
        if not 0 <= flip <= 1:
            raise ValueError(f"flip must lie in [0, 1], got {flip}")
        refuse_learning("FlippedOracleReward", outcome)
        self.outcome = outcome
        self.task = task
        self.weight = weight
        self.flip = flip
        self.seed = seed

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        values, starts = state_values(self.task, rollouts, self.label)
        return shaped(
            self.outcome(rollouts),
            rollouts,
            values,
            illegal=illegal_steps(self.task, rollouts),
            name="oracle_flipped",
            weight=self.weight,
            starts=starts,
        )

    def label(self, problem: Problem, state: Sequence[int]) -> float:
        """1 if the target can be reached, or with probability ``flip`` if it cannot; else 0."""
        truth = target_in_reach(problem, state)
        wrong = fixed_draw("oracle_flipped", self.seed, sorted(state), target_of(problem)) < self.flip
        return 1.0 - truth if wrong else truth

"""The exact oracle with some of its answers turned round: what a step reward of known accuracy is good for.

The answer on a state is the wrong one where a draw that stands still for (seed, state, target) is below ``flip``. So
asking again gets the same answer, all completions see the same mistakes, and a larger ``flip`` keeps the mistakes of a
smaller one. The state before the first step is asked about like any other.
"""

from __future__ import annotations

from collections.abc import Sequence

from contrastive_reasoning.rewards.base import Reward
from contrastive_reasoning.rewards.fixed_draw import fixed_draw
from contrastive_reasoning.rewards.oracle import OracleReward, target_of
from contrastive_reasoning.tasks.base import Problem, Task


class FlippedOracleReward(OracleReward):
    """``OracleReward`` whose label of a state is the wrong one with probability ``flip``. Countdown only.

    Raises:
        ValueError: for a ``flip`` outside [0, 1].
    """

    part = "oracle_flipped"

    def __init__(self, *, outcome: Reward, task: Task, weight: float, flip: float, seed: int) -> None:
        if not 0 <= flip <= 1:
            raise ValueError(f"flip must lie in [0, 1], got {flip}")
        super().__init__(outcome=outcome, task=task, weight=weight)
        self.flip = flip
        self.seed = seed

    def label(self, problem: Problem, state: Sequence[int]) -> float:
        """1 if the target can be reached, or with probability ``flip`` if it cannot; else 0."""
        truth = super().label(problem, state)
        wrong = fixed_draw("oracle_flipped", self.seed, sorted(state), target_of(problem)) < self.flip
        return 1.0 - truth if wrong else truth

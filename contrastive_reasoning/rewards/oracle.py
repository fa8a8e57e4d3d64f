"""The exact oracle as a reward: a step is worth 1 if the target can still be reached after it, else 0."""

from __future__ import annotations

from collections.abc import Sequence

from contrastive_reasoning.rewards.base import Credit, Reward, refuse_learning
from contrastive_reasoning.rewards.shaping import illegal_steps, shaped, state_values
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.tasks.base import Problem, Task
from contrastive_reasoning.tasks.countdown import reachable


class OracleReward:
    """``outcome`` plus ``weight`` times the share of legal steps that keep the target in reach. Countdown only."""

    values_steps = True
    values_starts = True

    def __init__(self, *, outcome: Reward, task: Task, weight: float) -> None:
        refuse_learning("OracleReward", outcome)
        self.outcome = outcome
        self.task = task
        self.weight = weight

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        values, starts = state_values(self.task, rollouts, target_in_reach)
        return shaped(
            self.outcome(rollouts),
            rollouts,
            values,
            illegal=illegal_steps(self.task, rollouts),
            name="oracle",
            weight=self.weight,
            starts=starts,
        )


def target_in_reach(problem: Problem, state: Sequence[int]) -> float:
    """1 if the problem's target can be reached from the numbers of the state, else 0."""
    return float(reachable(state, target_of(problem)))


def target_of(problem: Problem) -> int:
    """The number that a Countdown problem asks for.

    Raises:
        TypeError: for a problem of another task, of which this oracle knows nothing.
    """
    target = problem.fields.get("target")
    if not isinstance(target, int):
        raise TypeError(f"the oracle knows Countdown only, and problem {problem.id} has no target number")
    return target

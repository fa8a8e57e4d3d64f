"""The exact oracle as a reward: a step is worth 1 if the target can still be reached after it, else 0."""

from __future__ import annotations

from contrastive_reasoning.rewards.base import Credit, Reward, refuse_learning
from contrastive_reasoning.rewards.shaping import legal_steps, shaped
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.tasks.base import Problem, Task
from contrastive_reasoning.tasks.countdown import reachable


class OracleReward:
    """``outcome`` plus ``weight`` times the share of legal steps that keep the target in reach. Countdown only."""

    def __init__(self, *, outcome: Reward, task: Task, weight: float) -> None:
        refuse_learning("OracleReward", outcome)
        self.outcome = outcome
        self.task = task
        self.weight = weight

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        values = [
            [(step, float(reachable(step.state, target_of(rollouts.problem_of(row))))) for step in steps]
            for row, steps in enumerate(legal_steps(self.task, rollouts))
        ]
        starts = [float(reachable(problem.fields["numbers"], target_of(problem))) for problem in rollouts.problems]
        return shaped(self.outcome(rollouts), rollouts, values, name="oracle", weight=self.weight, starts=starts)


def target_of(problem: Problem) -> int:
    """The number that a Countdown problem asks for.

    Raises:
        TypeError: for a problem of another task, of which this oracle knows nothing.
    """
    target = problem.fields.get("target")
    if not isinstance(target, int):
        raise TypeError(f"the oracle knows Countdown only, and problem {problem.id} has no target number")
    return target

"""The exact oracle as a reward: a step is worth 1 if the target can still be reached after it, else 0."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from contrastive_reasoning.rewards.base import Credit, Reward, refuse_learning
from contrastive_reasoning.rewards.shaping import StepValue, illegal_steps, shaped, state_values
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.tasks.base import Problem, Step, Task
from contrastive_reasoning.tasks.countdown import CountdownProblem, reachable

CERTAIN = 10.0
"""The logit of what is in reach; of what is not its negative. σ(10) = 0.99995."""


class OracleReward:
    """``outcome`` plus ``weight`` times the share of legal steps that keep the target in reach. Countdown only.

    Its values are those of a perfect player; ``CalibratedReward`` makes of them the policy's own.
    """

    values_steps = True
    values_starts = True
    part = "oracle"
    """The name of its part of a credit."""

    def __init__(self, *, outcome: Reward, task: Task, weight: float) -> None:
        refuse_learning(type(self).__name__, outcome)
        self.outcome = outcome
        self.task = task
        self.weight = weight

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        values, starts = state_values(self.task, rollouts, self.label)
        return self.credit(rollouts, [], values, starts)

    def credit(
        self,
        rollouts: RolloutBatch,
        logits: Sequence[Float[Tensor, "1 _"]],
        values: Sequence[Sequence[StepValue]],
        starts: Sequence[float] | None,
    ) -> Credit:
        """The outcome's credit, with these values of steps and starts."""
        return shaped(
            self.outcome(rollouts),
            rollouts,
            values,
            illegal=illegal_steps(self.task, rollouts),
            name=self.part,
            weight=self.weight,
            starts=starts,
        )

    def step_logits(self, rollouts: RolloutBatch, steps: Sequence[Sequence[Step]]) -> list[Float[Tensor, "1 _"]]:
        """±``CERTAIN`` of every step of every rollout."""
        return [
            torch.tensor([[self._logit(rollouts.problem_of(row), step.state) for step in those]])
            for row, those in enumerate(steps)
        ]

    def start_logits(self, rollouts: RolloutBatch) -> Float[Tensor, "1 P"]:
        """±``CERTAIN`` of each problem before any step."""
        return torch.tensor([[self._logit(problem, problem.fields["numbers"]) for problem in rollouts.problems]])

    def label(self, problem: Problem, state: Sequence[int]) -> float:
        """1 if the problem's target can be reached from the numbers of the state, else 0."""
        return float(reachable(state, target_of(problem)))

    def _logit(self, problem: Problem, state: Sequence[int]) -> float:
        return CERTAIN if self.label(problem, state) else -CERTAIN


def in_reach(problem: Problem, step: Step) -> bool | None:
    """Whether the target can be reached after a step; None for an illegal one, and outside Countdown."""
    if not step.legal or not isinstance(problem, CountdownProblem):
        return None
    return reachable(step.state, problem.target)


def target_of(problem: Problem) -> int:
    """The number that a Countdown problem asks for.

    Raises:
        TypeError: for a problem of another task, of which this oracle knows nothing.
    """
    target = problem.fields.get("target")
    if not isinstance(target, int):
        raise TypeError(f"the oracle knows Countdown only, and problem {problem.id} has no target number")
    return target

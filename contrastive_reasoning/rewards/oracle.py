"""Rewards by exact search: a step that keeps the target in reach, or a perfect move. Countdown only."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from contrastive_reasoning.rewards.base import Credit, Reward, refuse_learning
from contrastive_reasoning.rewards.shaping import Steps, StepValue, read_steps, shape_by_states, shaped
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.tasks.base import Problem, Step, Task
from contrastive_reasoning.tasks.countdown import CountdownProblem, best_moves, reachable

CERTAIN = 10.0
"""The logit of what is in reach; of what is not its negative. σ(10) = 0.99995."""


class OracleReward:
    """``outcome`` plus ``weight`` times the share of legal steps after which the target can still be reached.

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
        return shape_by_states(self.outcome, self.task, rollouts, self.label, name=self.part, weight=self.weight)

    def credit(
        self,
        rollouts: RolloutBatch,
        steps: Steps,
        logits: Sequence[Float[Tensor, "1 _"]],
        values: Sequence[Sequence[StepValue]],
        starts: Sequence[float] | None,
        *,
        weight: float,
    ) -> Credit:
        """See ``LogitSource``."""
        credit, illegal = self.outcome(rollouts), steps.illegal
        return shaped(credit, rollouts, values, illegal=illegal, name=self.part, weight=weight, starts=starts)

    def step_logits(self, rollouts: RolloutBatch, steps: Sequence[Sequence[Step]]) -> list[Float[Tensor, "1 _"]]:
        """±``CERTAIN`` of every step of every rollout."""
        return [
            torch.tensor([[self._logit(rollouts.problem_of(row), step.state) for step in legal]])
            for row, legal in enumerate(steps)
        ]

    def start_logits(self, rollouts: RolloutBatch) -> Float[Tensor, "1 P"]:
        """±``CERTAIN`` of each problem before any step."""
        return torch.tensor([[self._logit(problem, problem.fields["numbers"]) for problem in rollouts.problems]])

    def label(self, problem: Problem, state: Sequence[int]) -> float:
        """1 if the problem's target can be reached from the numbers of the state, else 0."""
        return float(reachable(state, target_of(problem)))

    def _logit(self, problem: Problem, state: Sequence[int]) -> float:
        return CERTAIN if self.label(problem, state) else -CERTAIN


class PerfectMoveReward:
    """``outcome`` plus ``weight`` times the share of perfect moves among the decisions.

    The oracle reward values every step; here a step from a state that was already lost is no decision and carries no
    value:

        [21, 16, 17, 26] → 46      reachable: judged     21+16=37  keeps 46 in reach         1
        [37, 17, 26]               reachable: judged     37-26=11  loses it                  0
        [11, 17]                   lost: not judged      17-11=6   absent, not one more 0
    """

    values_steps = True

    def __init__(self, *, outcome: Reward, task: Task, weight: float) -> None:
        refuse_learning("PerfectMoveReward", outcome)
        self.outcome = outcome
        self.task = task
        self.weight = weight

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        steps = read_steps(self.task, rollouts)
        values = [decisions(rollouts.problem_of(row), legal) for row, legal in enumerate(steps.legal)]
        illegal = [  # of those, too, only the ones taken while there was something to lose
            [step for step in row if reachable(step.state, target_of(rollouts.problem_of(index)))]
            for index, row in enumerate(steps.illegal)
        ]
        credit = self.outcome(rollouts)
        return shaped(credit, rollouts, values, illegal=illegal, name="perfect_move", weight=self.weight)


def decisions(problem: Problem, steps: Sequence[Step]) -> list[StepValue]:
    """The steps taken from a still solvable state: 1 for a best move, 0 for any other."""
    target = target_of(problem)
    judged = []
    for parent, step in zip(parents(problem, steps), steps, strict=True):
        if reachable(parent, target):
            perfect = {tuple(sorted(move.state)) for move in best_moves(parent, target)}
            judged.append((step, float(tuple(sorted(step.state)) in perfect)))
    return judged


def parents(problem: Problem, steps: Sequence[Step]) -> list[tuple[int, ...]]:
    """The state each step was taken from: the latest one written that has one number more.

    In a list of moves that is the state before; in a search trace, which goes back, the node whose branch this is.
    """
    latest = {len(problem.fields["numbers"]): tuple(problem.fields["numbers"])}
    found = []
    for step in steps:
        found.append(latest[len(step.state) + 1])
        latest[len(step.state)] = tuple(step.state)
    return found


def in_reach(problem: Problem, step: Step) -> bool | None:
    """Whether the target can be reached after a step; None for an illegal one, and outside Countdown."""
    if not step.legal or not isinstance(problem, CountdownProblem):
        return None
    return reachable(step.state, problem.target)


def target_of(problem: Problem) -> int:
    """The number that a Countdown problem asks for.

    Raises TypeError for a problem of another task, of which this oracle knows nothing.
    """
    target = problem.fields.get("target")
    if not isinstance(target, int):
        raise TypeError(f"the oracle knows Countdown only, and problem {problem.id} has no target number")
    return target

"""Rewards from exact search: for steps that keep the target reachable, or for perfect moves. Countdown only."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from contrastive_reasoning.rewards.base import Credit
from contrastive_reasoning.rewards.step_values import (
    StateReward,
    StepReward,
    Steps,
    StepValue,
    add_step_credit,
    read_steps,
)
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.tasks.base import Problem, Step
from contrastive_reasoning.tasks.countdown import CountdownProblem, best_moves, reachable

CERTAIN = 10.0
"""The logit of a state from which the target is reachable; its negative otherwise. σ(10) = 0.99995."""


class OracleReward(StateReward):
    """``outcome`` plus ``weight`` times the share of legal steps after which the target can still be reached.

    Its values are those of a perfect player; ``CalibratedReward`` converts them to those of the policy.
    """

    part = "oracle"

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
        return add_step_credit(credit, rollouts, values, illegal=illegal, name=self.part, weight=weight, starts=starts)

    def state_logits(
        self, rollouts: RolloutBatch, steps: Sequence[Sequence[Step]]
    ) -> tuple[list[Float[Tensor, "1 _"]], Float[Tensor, "1 P"]]:
        """Returns ``logit`` of every step of every rollout, and of each problem before any step."""
        starts = [self.logit(problem, problem.fields["numbers"]) for problem in rollouts.problems]
        of_steps = [
            torch.tensor([[self.logit(rollouts.problem_of(row), step.state) for step in legal]])
            for row, legal in enumerate(steps)
        ]
        return of_steps, torch.tensor([starts])

    def label(self, problem: Problem, state: Sequence[int]) -> float:
        """Returns 1 if the problem's target can be reached from the numbers of the state, else 0."""
        return float(reachable(state, target_of(problem)))

    def logit(self, problem: Problem, state: Sequence[int]) -> float:
        """Returns ±``CERTAIN``, which ``CalibratedReward`` maps to the chance of a state."""
        return CERTAIN if self.label(problem, state) else -CERTAIN


class PerfectMoveReward(StepReward):
    """``outcome`` plus ``weight`` times the share of perfect moves among the decisions.

    The oracle reward values every step. Here a step from a state that is already lost is not a decision and has no
    value:

        [21, 16, 17, 26] → 46      reachable: judged     21+16=37  keeps 46 in reach         1
        [37, 17, 26]               reachable: judged     37-26=11  loses it                  0
        [11, 17]                   lost: not judged      17-11=6   absent, not one more 0
    """

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        steps = read_steps(self.task, rollouts)
        values = [decisions(rollouts.problem_of(row), legal) for row, legal in enumerate(steps.legal)]
        illegal = [  # likewise only the illegal steps from a state that can still reach the target
            [step for step in row if reachable(step.state, target_of(rollouts.problem_of(index)))]
            for index, row in enumerate(steps.illegal)
        ]
        credit = self.outcome(rollouts)
        return add_step_credit(credit, rollouts, values, illegal=illegal, name="perfect_move", weight=self.weight)


def decisions(problem: Problem, steps: Sequence[Step]) -> list[StepValue]:
    """Returns the steps from states that can still reach the target: 1 for a best move, 0 for any other."""
    target = target_of(problem)
    judged = []
    for parent, step in zip(parents(problem, steps), steps, strict=True):
        if reachable(parent, target):
            perfect = {tuple(sorted(move.state)) for move in best_moves(parent, target)}
            judged.append((step, float(tuple(sorted(step.state)) in perfect)))
    return judged


def parents(problem: Problem, steps: Sequence[Step]) -> list[tuple[int, ...]]:
    """Returns the state that each step started from: the last written state with one number more.

    In a list of moves this is the preceding state. In a search trace, which backtracks, it is the parent node.
    """
    latest = {len(problem.fields["numbers"]): tuple(problem.fields["numbers"])}
    found = []
    for step in steps:
        found.append(latest[len(step.state) + 1])
        latest[len(step.state)] = tuple(step.state)
    return found


def in_reach(problem: Problem, step: Step) -> bool | None:
    """Returns whether the target can be reached after a step; None for an illegal step and for other tasks."""
    if not step.legal or not isinstance(problem, CountdownProblem):
        return None
    return reachable(step.state, problem.target)


def target_of(problem: Problem) -> int:
    """Returns the target number of a Countdown problem.

    Raises TypeError for a problem of another task, which this oracle does not support.
    """
    target = problem.fields.get("target")
    if not isinstance(target, int):
        raise TypeError(f"the oracle knows Countdown only, and problem {problem.id} has no target number")
    return target

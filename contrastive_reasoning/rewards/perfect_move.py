"""Only the perfect move counts: a step is worth 1 on a solution path, and is judged only where there was one.

The oracle reward values every step; here a step from a state that was already lost is no decision and carries no value:

        [21, 16, 17, 26] → 46      reachable: judged     21+16=37  keeps 46 in reach         1
        [37, 17, 26]               reachable: judged     37-26=11  loses it                  0
        [11, 17]                   lost: not judged      17-11=6   absent, not one more 0
"""

from __future__ import annotations

from collections.abc import Sequence

from contrastive_reasoning.rewards.base import Credit, Reward, refuse_learning
from contrastive_reasoning.rewards.oracle import target_of
from contrastive_reasoning.rewards.shaping import StepValue, illegal_steps, legal_steps, shaped
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.tasks.base import Problem, Step, Task
from contrastive_reasoning.tasks.countdown import best_moves, reachable


class PerfectMoveReward:
    """``outcome`` plus ``weight`` times the share of perfect moves among the decisions. Countdown only."""

    values_steps = True

    def __init__(self, *, outcome: Reward, task: Task, weight: float) -> None:
        refuse_learning("PerfectMoveReward", outcome)
        self.outcome = outcome
        self.task = task
        self.weight = weight

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        values = [
            decisions(rollouts.problem_of(row), steps) for row, steps in enumerate(legal_steps(self.task, rollouts))
        ]
        return shaped(
            self.outcome(rollouts),
            rollouts,
            values,
            illegal=self._illegal(rollouts),
            name="perfect_move",
            weight=self.weight,
        )

    def _illegal(self, rollouts: RolloutBatch) -> list[list[Step]]:
        """Those taken while there was something to lose."""
        return [
            [step for step in steps if reachable(step.state, target_of(rollouts.problem_of(row)))]
            for row, steps in enumerate(illegal_steps(self.task, rollouts))
        ]


def decisions(problem: Problem, steps: Sequence[Step]) -> list[StepValue]:
    """The steps taken from a still solvable state: 1 for a best move, 0 for any other."""
    target = target_of(problem)
    judged = []
    for parent, step in zip(parents(problem, steps), steps, strict=True):
        if reachable(parent, target):
            perfect = {_multiset(move.state) for move in best_moves(parent, target)}
            judged.append((step, float(_multiset(step.state) in perfect)))
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


def _multiset(state: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(state))

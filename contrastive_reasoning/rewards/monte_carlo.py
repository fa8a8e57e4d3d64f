"""Monte Carlo values of steps: the share of correct completions among the continuations of each step (VinePPO).

    V(s₀) = share correct of the other rollouts of the group     V(s_k) = share correct of its continuations
    V(s_K) = the rollout's own verdict, if it ends there         arXiv:2410.01679, Section 4

The values are sampled together with the rollouts (``rollout=vineppo``); this module assigns each to its step. The
metrics ``steps/…`` leave out the steps without sampled continuations, because their value is the verdict itself.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from contrastive_reasoning.rewards.base import Credit
from contrastive_reasoning.rewards.step_values import StepReward, add_step_credit, read_steps
from contrastive_reasoning.rollout.batch import RolloutBatch


class MonteCarloReward(StepReward):
    """``outcome``, which must verify, plus ``weight`` times the mean value of the legal steps.

    A rollout's own verdict is left out of the value of its start, so that this value does not depend on the rollout.
    """

    values_starts = True
    reads_prefix_values = True
    """It reads ``rollouts.prefix_values``, which most engines leave out."""

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        """Raises ValueError if the rollouts have no prefix values or the outcome has no verdicts."""
        credit = self.outcome(rollouts)
        if rollouts.prefix_values is None:
            raise ValueError("reward=monte_carlo needs rollouts with values of their prefixes: choose rollout=vineppo")
        if credit.verdicts is None:
            raise ValueError(f"reward=monte_carlo needs an outcome that verifies, got {credit.named}")
        correct = [float(verdict.correct) for verdict in credit.verdicts]
        steps = read_steps(self.task, rollouts)
        values = [
            [(step, own if value is None else value) for step, value in zip(legal, drawn, strict=True)]
            for legal, drawn, own in zip(steps.legal, rollouts.prefix_values, correct, strict=True)
        ]
        credit = add_step_credit(
            credit,
            rollouts,
            values,
            illegal=steps.illegal,
            name="monte_carlo",
            weight=self.weight,
            finished=[[value is None for value in drawn] for drawn in rollouts.prefix_values],
        )
        return replace(credit, starts=others_mean(correct, rollouts.group_size, credit.failures))


def others_mean(values: Sequence[float], group_size: int, left_out: Collection[int] = ()) -> list[float]:
    """Returns for each of B values the mean of its group's others that are not left out, or the value itself.

    The value itself is returned if no other is left.
    """
    means: list[float] = []
    for row, value in enumerate(values):
        start = row - row % group_size
        others = [values[one] for one in range(start, start + group_size) if one != row and one not in left_out]
        means.append(sum(others) / len(others) if others else value)
    return means

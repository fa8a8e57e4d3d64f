"""A weighted sum of rewards, every one of them still logged by its own name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from contrastive_reasoning.rewards.base import Credit, Reward, StepCredit, refuse_learning
from contrastive_reasoning.rewards.failures import failure_metrics
from contrastive_reasoning.rollout.batch import RolloutBatch


class WeightedSum:
    """Σ weight · outcome over ``rewards``. At most one of them may value steps; its values stay as they are.

    A value says something of a state, and advantages compare it with the verdict, which no weight scales either. How
    much values count is the weight of the advantage.

    Raises:
        ValueError: where names of rewards and weights differ, or two rewards share the name of a part.
    """

    def __init__(self, *, rewards: Mapping[str, Reward], weights: Mapping[str, float]) -> None:
        if set(rewards) != set(weights) or not rewards:
            raise ValueError(f"rewards ({', '.join(rewards)}) and weights ({', '.join(weights)}) must name the same")
        refuse_learning("WeightedSum", *rewards.values())
        self.rewards = dict(rewards)
        self.weights = dict(weights)

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        credits = {name: reward(rollouts) for name, reward in self.rewards.items()}
        outcome = torch.stack([self.weights[name] * credit.outcome for name, credit in credits.items()]).sum(dim=0)
        verdicts = [credit.verdicts for credit in credits.values() if credit.verdicts is not None]
        failures = {row: why for credit in credits.values() for row, why in credit.failures.items()}
        metrics = {name: value for credit in credits.values() for name, value in credit.metrics.items()}
        return Credit(
            outcome=outcome,
            parts=_all_parts(credits),
            steps=self._steps(credits),
            illegal=next((credit.illegal for credit in credits.values() if credit.illegal is not None), None),
            starts=self._starts(credits),
            verdicts=verdicts[0] if verdicts else None,
            failures=failures,
            metrics={**metrics, **failure_metrics(failures, len(rollouts))},
        )

    def _steps(self, credits: Mapping[str, Credit]) -> Sequence[Sequence[StepCredit]] | None:
        valuing = {name: credit.steps for name, credit in credits.items() if credit.steps is not None}
        if len(valuing) > 1:
            raise ValueError(f"one reward of a sum may value steps, not {' and '.join(valuing)}")
        return next(iter(valuing.values()), None)

    def _starts(self, credits: Mapping[str, Credit]) -> Sequence[float] | None:
        return next((credit.starts for credit in credits.values() if credit.starts is not None), None)


def _all_parts(credits: Mapping[str, Credit]) -> dict[str, torch.Tensor]:
    parts: dict[str, torch.Tensor] = {}
    for name, credit in credits.items():
        if shared := parts.keys() & credit.parts.keys():
            raise ValueError(f"reward {name} repeats the part {', '.join(sorted(shared))} of another reward of the sum")
        parts.update(credit.parts)
    return parts

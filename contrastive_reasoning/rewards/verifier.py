"""The verifier's reward: 1 for a correct completion, 0 for any other, with the reason kept."""

from __future__ import annotations

from contrastive_reasoning.rewards.base import Credit
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.rollout.verdicts import verdicts_of
from contrastive_reasoning.tasks.base import Task


class VerifierReward:
    verifies = True
    """Its credit has verdicts."""

    def __init__(self, *, task: Task) -> None:
        self.task = task

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        verdicts = verdicts_of(self.task, rollouts)
        outcome = rollouts.old_log_probs.new_tensor([float(verdict.correct) for verdict in verdicts])
        return Credit(outcome=outcome, parts={"verifier": outcome}, verdicts=verdicts)

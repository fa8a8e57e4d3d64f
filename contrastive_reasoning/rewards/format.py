"""The format's reward: 1 where the completion ended by itself and could be read, right or wrong, else 0."""

from __future__ import annotations

from contrastive_reasoning.rewards.base import Credit
from contrastive_reasoning.rollout.batch import RolloutBatch, verdicts_of
from contrastive_reasoning.tasks.base import Task


class FormatReward:
    """Says nothing of correctness: weigh it well below the verifier."""

    verifies = True
    """Its credit has verdicts."""

    def __init__(self, *, task: Task) -> None:
        self.task = task

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        verdicts = verdicts_of(self.task, rollouts)
        readable = [
            float(verdict.status in ("ok", "wrong") and finish == "stop")
            for verdict, finish in zip(verdicts, rollouts.finish_reasons, strict=True)
        ]
        outcome = rollouts.old_log_probs.new_tensor(readable)
        return Credit(outcome=outcome, parts={"format": outcome}, verdicts=verdicts)

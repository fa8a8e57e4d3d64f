"""The verifier's reward: 1 for a correct completion, 0 for any other, with the reason kept.

A completion whose judging failed, ``error``, was neither: it is left out. A timeout is the completion's own doing.
"""

from __future__ import annotations

from contrastive_reasoning.rewards.base import Credit
from contrastive_reasoning.rewards.failures import Warned, failure_metrics, filled
from contrastive_reasoning.rollout.batch import RolloutBatch, verdicts_of
from contrastive_reasoning.tasks.base import Task


class VerifierReward:
    verifies = True
    """Its credit has verdicts."""

    def __init__(self, *, task: Task) -> None:
        self.task = task
        self._warn = Warned("the verifier")

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        verdicts = verdicts_of(self.task, rollouts)
        failures = {row: verdict for row, verdict in enumerate(verdicts) if not verdict.judged}
        values = filled([float(verdict.correct) if verdict.judged else None for verdict in verdicts])
        outcome = rollouts.old_log_probs.new_tensor(values)
        self._warn(failures)
        return Credit(
            outcome=outcome,
            parts={"verifier": outcome},
            verdicts=verdicts,
            failures=failures,
            metrics=failure_metrics(failures, len(rollouts)),
        )

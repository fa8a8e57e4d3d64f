"""A benchmark's own score of a completion as a reward, for example LongProc's accuracy or extraction rate."""

from __future__ import annotations

from contrastive_reasoning.rewards.base import Credit
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.tasks.base import Task


class TaskScoreReward:
    """One of the scores that the task gives a completion, in the score's own range.

    Args:
        task: computes the scores.
        score: the score's name, for example ``longproc/accuracy``; the part is then named ``longproc_accuracy``.

    Raises ValueError, when called, for a score that the task does not have.
    """

    def __init__(self, *, task: Task, score: str) -> None:
        self.task = task
        self.score = score

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        values = [self._value(rollouts, row) for row in range(len(rollouts))]
        outcome = rollouts.old_log_probs.new_tensor(values)
        return Credit(outcome=outcome, parts={self.score.replace("/", "_"): outcome})

    def _value(self, rollouts: RolloutBatch, row: int) -> float:
        scores = self.task.scores(rollouts.problem_of(row), rollouts.texts[row])
        if self.score not in scores:
            known = ", ".join(sorted(scores)) or "none"
            raise ValueError(f"the task {self.task.name} has no score {self.score!r}; it has {known}")
        return scores[self.score]

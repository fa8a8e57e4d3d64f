"""The task's verdict on every rollout of a batch."""

from __future__ import annotations

from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.tasks.base import Task, Verdict, VerifiesTogether


def verdicts_of(task: Task, rollouts: RolloutBatch) -> list[Verdict]:
    """One verdict per rollout; all at once where the task can."""
    problems = [rollouts.problem_of(row) for row in range(len(rollouts))]
    if isinstance(task, VerifiesTogether):
        return task.verify_all(problems, rollouts.texts)
    return [task.verify(problem, text) for problem, text in zip(problems, rollouts.texts, strict=True)]

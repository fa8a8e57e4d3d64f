"""The task's verdict on every rollout of a batch."""

from __future__ import annotations

from collections.abc import Sequence

from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.tasks.base import Problem, Task, Verdict, VerifiesTogether


def verdicts_of(task: Task, rollouts: RolloutBatch) -> list[Verdict]:
    """One verdict per rollout; all at once where the task can."""
    return judged(task, [rollouts.problem_of(row) for row in range(len(rollouts))], rollouts.texts)


def judged(task: Task, problems: Sequence[Problem], texts: Sequence[str]) -> list[Verdict]:
    """One verdict per completion of the problem at its place."""
    if isinstance(task, VerifiesTogether):
        return task.verify_all(problems, texts)
    return [task.verify(problem, text) for problem, text in zip(problems, texts, strict=True)]

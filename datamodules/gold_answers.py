"""Prompts with their gold answers as examples: the warm start of a fresh policy for tasks that write out their answers.

Such a policy was trained on the gold answers of the problems that GRPO trains on afterwards.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from contrastive_reasoning.tasks.base import Problem, Split, Task
from datamodules.batch_stream import BatchData, Example


@dataclass(frozen=True, kw_only=True)
class GoldCorpus:
    """Texts for a tokenizer: prompts and gold answers of the first training problems."""

    task: Task
    problems: int

    def __call__(self) -> list[str]:
        return [text for problem in with_gold(self.task, "train")[: self.problems] for text in _example(problem)]


@dataclass(kw_only=True, eq=False, repr=False)
class GoldAnswers(BatchData[list[Example]]):
    """Batches of problems drawn with replacement, each with its gold answer as the completion."""

    task: Task
    batch_size: int
    seed: int

    def batch(self, number: int, *, split: Split = "train") -> list[Example]:
        rng = random.Random(f"{self.seed}/gold answers/{split}/{number}")
        return [_example(problem) for problem in rng.choices(with_gold(self.task, split), k=self.batch_size)]


def with_gold(task: Task, split: Split) -> list[Problem]:
    """The problems that have a gold answer. Raises ValueError if none has."""
    found = [problem for problem in task.problems(split) if problem.answer]
    if not found:
        raise ValueError(f"{task.name}: no {split} problem has a gold answer to learn from")
    return found


def _example(problem: Problem) -> Example:
    return problem.prompt, problem.answer

"""What a reward of one's own looks like: a function of a problem and a completion that returns a number."""

from __future__ import annotations

from contrastive_reasoning.tasks.base import Problem


def mentions_answer(problem: Problem, completion: str) -> float:
    """1 where the gold answer stands anywhere in the completion, else 0: an example, and easily gamed."""
    return float(problem.answer in completion)

"""What a reward or a verifier of one's own looks like: plain functions, named in a YAML by their path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from contrastive_reasoning.tasks.base import Problem


def mentions_answer(problem: Problem, completion: str) -> float:
    """A reward: 1 where the gold answer stands anywhere in the completion, else 0; easily gamed."""
    return float(problem.answer in completion)


def mentions_answers(completions: Sequence[str], answer: Sequence[str], **kwargs: Any) -> list[float | None]:
    """The same in the form of TRL, lists in and a list of numbers out; None where a problem has no answer."""
    return [float(gold in text) if gold else None for text, gold in zip(completions, answer, strict=True)]


def same_text(problem: Problem, completion: str) -> bool | str:
    """A verifier: right where the completion is the gold answer but for the space around it; else a reason."""
    if not completion.strip():
        return "nothing is written"
    return completion.strip() == problem.answer or "another text than the answer"

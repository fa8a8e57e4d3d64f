"""Examples of user-defined rewards and verifiers: plain functions, referenced in a YAML file by their import path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from contrastive_reasoning.tasks.base import Problem


def mentions_answer(problem: Problem, completion: str) -> float:
    """A reward: 1 if the gold answer occurs anywhere in the completion, else 0. It is easy to game."""
    return float(problem.answer in completion)


def mentions_answers(completions: Sequence[str], answer: Sequence[str], **kwargs: Any) -> list[float | None]:
    """The same reward with TRL's signature: lists in, a list of numbers out; None for a problem without an answer."""
    return [float(gold in text) if gold else None for text, gold in zip(completions, answer, strict=True)]


def same_text(problem: Problem, completion: str) -> bool | str:
    """A verifier: True if the completion is the gold answer up to surrounding whitespace, else the reason."""
    if not completion.strip():
        return "nothing is written"
    return completion.strip() == problem.answer or "another text than the answer"

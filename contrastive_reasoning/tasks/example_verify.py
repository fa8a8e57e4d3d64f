"""What a verifier of one's own looks like: a function of a problem and a completion that says whether it is right."""

from __future__ import annotations

from contrastive_reasoning.tasks.base import Problem


def same_text(problem: Problem, completion: str) -> bool | str:
    """Right where the completion is the gold answer but for the space around it; else a reason."""
    if not completion.strip():
        return "nothing is written"
    return completion.strip() == problem.answer or "another text than the answer"

"""A question and its answer, each in a column of its own."""

from __future__ import annotations

from dataclasses import dataclass

from contrastive_reasoning.tasks.base import Problem
from contrastive_reasoning.tasks.formats.base import Row
from contrastive_reasoning.tasks.formats.columns import text_at
from contrastive_reasoning.tasks.formats.instruction import with_instruction


@dataclass(frozen=True, kw_only=True)
class PlainAnswer:
    """The gold answer is the column as it stands; numbers become text."""

    question: str
    """Column of the question."""
    answer: str
    """Column of the answer."""
    instruction: str

    def __call__(self, row: Row, *, id: str) -> Problem:
        prompt = with_instruction(text_at(row, self.question), self.instruction)
        return Problem(id=id, prompt=prompt, answer=text_at(row, self.answer))

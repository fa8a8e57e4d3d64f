r"""A whole solution in LaTeX with its answer in a box, as in MATH: ``… so the answer is $\boxed{\frac{1}{2}}$.``"""

from __future__ import annotations

from dataclasses import dataclass

from contrastive_reasoning.tasks.answer.extract import extract
from contrastive_reasoning.tasks.base import Problem
from contrastive_reasoning.tasks.formats.base import BadRow, Row
from contrastive_reasoning.tasks.formats.columns import text_at
from contrastive_reasoning.tasks.formats.instruction import with_instruction


@dataclass(frozen=True, kw_only=True)
class BoxedSolution:
    """The gold answer is what stands in the last box: earlier ones hold the same, or a step."""

    question: str
    """Column of the question."""
    solution: str
    """Column of the solution."""
    instruction: str

    def __call__(self, row: Row, *, id: str) -> Problem:
        prompt = with_instruction(text_at(row, self.question), self.instruction)
        return Problem(id=id, prompt=prompt, answer=answer_in(text_at(row, self.solution)))


def answer_in(solution: str) -> str:
    """What stands in the last box of a solution, read as it is read in a completion.

    Raises:
        BadRow: where there is no box, an empty one, or one that is never closed.
    """
    found = extract(solution)
    if found.answer is None or not found.boxed:
        raise BadRow(f"no answer in the solution: {found.reason if found.boxed else 'no box'}")
    return found.answer

"""A worked answer that ends in its result after four hashes, as in GSM8K: ``… so 48+24 = 72 in all.\\n#### 72``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from contrastive_reasoning.tasks.base import Problem
from contrastive_reasoning.tasks.formats.base import BadRow, Row
from contrastive_reasoning.tasks.formats.columns import text_at
from contrastive_reasoning.tasks.formats.instruction import with_instruction

MARK = "####"
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")


@dataclass(frozen=True, kw_only=True)
class WorkedAnswer:
    """The gold answer is what stands after the last mark, thousands separators taken out."""

    question: str
    """Column of the question."""
    answer: str
    """Column of the worked answer."""
    instruction: str

    def __call__(self, row: Row, *, id: str) -> Problem:
        prompt = with_instruction(text_at(row, self.question), self.instruction)
        return Problem(id=id, prompt=prompt, answer=result_of(text_at(row, self.answer)))


def result_of(worked: str) -> str:
    """``1234`` of ``… = 1,234\\n#### 1,234``.

    Raises:
        BadRow: where there is no mark, or nothing after it.
    """
    _, mark, result = worked.rpartition(MARK)
    answer = _THOUSANDS.sub("", result.strip())
    if not mark or not answer:
        raise BadRow(f"the worked answer has no result after {MARK}")
    return answer

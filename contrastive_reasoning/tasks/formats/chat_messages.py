"""Rows for chat trainers: the prompt as messages, the gold answer in a nested column. The CLIPO files are such."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from contrastive_reasoning.tasks.base import Problem
from contrastive_reasoning.tasks.formats.base import BadRow, Row
from contrastive_reasoning.tasks.formats.boxed_solution import answer_in
from contrastive_reasoning.tasks.formats.columns import as_text, text_at, value_at
from contrastive_reasoning.tasks.formats.instruction import with_instruction


@dataclass(frozen=True, kw_only=True)
class ChatMessages:
    """One user message is the question. A gold answer which is a whole solution is cut down to its last box."""

    messages: str
    """Column of the messages, each with ``role`` and ``content``."""
    answer: str
    """Column of the gold answer."""
    instruction: str

    def __call__(self, row: Row, *, id: str) -> Problem:
        question = user_text(value_at(row, self.messages))
        answer = text_at(row, self.answer)
        return Problem(
            id=id,
            prompt=with_instruction(question, self.instruction),
            answer=answer_in(answer) if r"\boxed" in answer else answer,
        )


def user_text(messages: Any) -> str:
    """The content of the only message.

    Raises:
        BadRow: where there is another message (a system's or an earlier turn's would be lost), or it is no text.
    """
    if not isinstance(messages, list | tuple) or not all(isinstance(message, dict) for message in messages):
        raise BadRow("the messages are no list of {role, content}")
    roles = [message.get("role") for message in messages]
    if roles != ["user"]:
        raise BadRow(f"the messages must be one user's, got {', '.join(map(str, roles)) or 'none'}")
    return as_text(messages[0].get("content"), "the message")

"""Rows whose prompt is a conversation, kept as it is: the parquet files of verl, and any like them.

verl's documented columns (its "Prepare Data" page): ``data_source``, ``prompt`` = [{role, content}, …], ``ability``,
``reward_model`` = {style, ground_truth}, ``extra_info`` = {split, index, …}.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from contrastive_reasoning.tasks.base import Problem
from contrastive_reasoning.tasks.chat_prompt import ChatPrompt, Message
from contrastive_reasoning.tasks.formats.base import BadRow, Row
from contrastive_reasoning.tasks.formats.boxed_solution import answer_in
from contrastive_reasoning.tasks.formats.columns import as_text, text_at, value_at

ROLES = ("system", "user", "assistant")


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """Every message reaches the policy; nothing is added. The columns named by ``keep`` are fields of the problem.

    A gold answer which is a whole solution is cut down to its last box.
    """

    messages: str
    """Column of the messages, each with ``role`` and ``content``; the last is the user's."""
    answer: str
    """Column of the gold answer."""
    keep: Sequence[str]
    """Columns, where the row has them."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "keep", tuple(self.keep))

    def __call__(self, row: Row, *, id: str) -> Problem:
        answer = text_at(row, self.answer)
        return Problem(
            id=id,
            prompt=ChatPrompt(conversation(value_at(row, self.messages))),
            answer=answer_in(answer) if r"\boxed" in answer else answer,
            fields={name: row[name] for name in self.keep if name in row},
        )


def conversation(messages: Any) -> list[Message]:
    """The messages of a column.

    Raises:
        BadRow: where they are no list of {role, content} with text in it, have an unknown role, or end with another
            message than the user's.
    """
    if not isinstance(messages, list | tuple) or not all(isinstance(message, dict) for message in messages):
        raise BadRow("the messages are no list of {role, content}")
    roles = [message.get("role") for message in messages]
    if unknown := [role for role in roles if role not in ROLES]:
        raise BadRow(f"the role of a message must be one of {', '.join(ROLES)}, got {unknown[0]!r}")
    if roles[-1:] != ["user"]:
        raise BadRow(f"the last message must be the user's, got {', '.join(map(str, roles)) or 'none'}")
    return [Message(message["role"], as_text(message.get("content"), "a message")) for message in messages]

"""A prompt of several messages: a system's, earlier turns, and last the user's question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Message(NamedTuple):
    """One turn of a conversation."""

    role: str
    """``system``, ``user`` or ``assistant``."""
    content: str


class ChatPrompt(str):
    """A prompt with its messages. As a text it is what they say, one after another.

    A policy with a chat template reads the messages, any other the text; whatever knows nothing of messages (logs,
    pictures, the hash that shares out problems) sees a text as of any other prompt.
    """

    messages: tuple[Message, ...]

    def __new__(cls, messages: Sequence[tuple[str, str]]) -> ChatPrompt:
        prompt = super().__new__(cls, "\n\n".join(content for _, content in messages))
        prompt.messages = tuple(Message(*message) for message in messages)
        return prompt

    def __getnewargs__(self) -> tuple[tuple[Message, ...]]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return (self.messages,)


def messages_of(prompt: str) -> tuple[Message, ...]:
    """The messages of a prompt; a plain text is one of the user."""
    return prompt.messages if isinstance(prompt, ChatPrompt) else (Message("user", prompt),)

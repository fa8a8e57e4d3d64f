from __future__ import annotations

import copy
import pickle

from contrastive_reasoning.tasks.base import ChatPrompt, Message, messages_of

TURNS = [("system", "Be short."), ("user", "What is 2 + 2?")]


def test_chat_prompt_keeps_messages_when_pickled_or_copied() -> None:
    prompt = ChatPrompt(TURNS)
    assert prompt == "Be short.\n\nWhat is 2 + 2?"
    for restored in (
        pickle.loads(pickle.dumps(prompt, protocol=2)),
        pickle.loads(pickle.dumps(prompt)),
        copy.deepcopy(prompt),
    ):
        assert messages_of(restored) == prompt.messages == tuple(Message(*turn) for turn in TURNS)
    assert messages_of("What is 2 + 2?") == (Message("user", "What is 2 + 2?"),)

from __future__ import annotations

import copy
import pickle

from contrastive_reasoning.tasks.base import ChatPrompt, Message, messages_of

TURNS = [("system", "Be short."), ("user", "What is 2 + 2?")]


def test_a_chat_prompt_is_a_text_whose_messages_travel_to_other_processes() -> None:
    prompt = ChatPrompt(TURNS)
    assert prompt == "Be short.\n\nWhat is 2 + 2?"
    for there in (
        pickle.loads(pickle.dumps(prompt, protocol=2)),
        pickle.loads(pickle.dumps(prompt)),
        copy.deepcopy(prompt),
    ):
        assert messages_of(there) == prompt.messages == tuple(Message(*turn) for turn in TURNS)
    assert messages_of("What is 2 + 2?") == (Message("user", "What is 2 + 2?"),)

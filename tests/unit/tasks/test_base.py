from __future__ import annotations

import copy
import pickle

from contrastive_reasoning.tasks.base import ChatPrompt, Message, messages_of

TURNS = [("system", "Be short."), ("user", "What is 2 + 2?")]


def test_as_a_text_it_is_what_the_messages_say() -> None:
    prompt = ChatPrompt(TURNS)
    assert prompt == "Be short.\n\nWhat is 2 + 2?"
    assert prompt.messages == (Message("system", "Be short."), Message("user", "What is 2 + 2?"))


def test_its_messages_travel_to_other_processes() -> None:
    prompt = ChatPrompt(TURNS)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        there = pickle.loads(pickle.dumps(prompt, protocol=protocol))
        assert (there, there.messages) == (prompt, prompt.messages)
    assert copy.deepcopy(prompt).messages == prompt.messages


def test_a_plain_text_is_one_message_of_the_user() -> None:
    assert messages_of("What is 2 + 2?") == (Message("user", "What is 2 + 2?"),)
    assert messages_of(ChatPrompt(TURNS)) == tuple(Message(*turn) for turn in TURNS)

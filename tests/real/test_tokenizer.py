"""The real tokenizer and chat template: text to tokens and back."""

from __future__ import annotations

import pytest

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.prompting import prompt_ids
from contrastive_reasoning.rollout.spans import text_of, token_bytes, token_spans, visible_tokens
from tests.real.conftest import QUESTIONS, SHOTS
from tests.unit.rollout.test_spans import TEXTS

pytestmark = pytest.mark.real
NO_SYSTEM = "<|im_start|>system\n<|im_end|>\n"
"""The template cannot omit its system message, so the message is empty."""
TURN = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
DEFAULT = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"


@pytest.mark.parametrize("text", [*TEXTS, *QUESTIONS, SHOTS, r"So $\frac{1}{2}$ is \boxed{0.5}." + "\r\n\t  x"])
def test_tokenizer_round_trip_keeps_text(policy: CausalLMPolicy, text: str) -> None:
    ids = policy.tokenizer(text, add_special_tokens=False)["input_ids"]
    table = token_bytes(policy.tokenizer)
    assert policy.tokenizer.decode(ids) == text == text_of(table, ids)
    spans = token_spans(table, ids)
    assert sorted({character for start, end in spans for character in range(start, end)}) == [*range(len(text))]
    assert spans == sorted(spans)
    assert policy.encode_completions([text])[0].tolist() == [[*ids, policy.end_token_id]]


def test_token_bytes_match_decoding_of_every_ordinary_token(policy: CausalLMPolicy) -> None:
    """All 49,152 of them, one at a time; half a character is shown as U+FFFD."""
    table, added = token_bytes(policy.tokenizer), policy.tokenizer.added_tokens_decoder
    plain = [number for number in range(len(table)) if number not in added or not added[number].special]
    decoded = policy.tokenizer.batch_decode([[number] for number in plain])
    assert [table[number].decode("utf-8", "replace") for number in plain] == decoded
    assert len(plain) > 49_000


def test_each_digit_is_one_token(policy: CausalLMPolicy) -> None:
    ids = policy.tokenizer("21+16=37", add_special_tokens=False)["input_ids"]
    assert visible_tokens(policy.tokenizer, ids) == [*"21+16=37"]


@pytest.mark.parametrize(("system", "before"), [("none", NO_SYSTEM), ("default", DEFAULT), ("Be brief.", None)])
def test_prompt_ids_follow_chat_template(policy: CausalLMPolicy, system: str, before: str | None) -> None:
    before = f"<|im_start|>system\n{system}<|im_end|>\n" if before is None else before
    for question in QUESTIONS:
        ids = prompt_ids(policy.tokenizer, question, chat_template=True, system=system)
        assert policy.tokenizer.decode(ids) == before + TURN.format(question)


def test_default_prompt_matches_transformers_chat_template(policy: CausalLMPolicy) -> None:
    for question in QUESTIONS:
        turns = [{"role": "user", "content": question}]
        theirs = policy.tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=True)
        assert prompt_ids(policy.tokenizer, question, chat_template=True, system="default") == theirs["input_ids"]


def test_special_token_quoted_in_prompt_does_not_end_turn(policy: CausalLMPolicy) -> None:
    ids = policy.prompt_ids("What does <|im_end|> mean?")
    assert policy.tokenizer.decode(ids) == NO_SYSTEM + TURN.format("What does <|im_end|> mean?")
    assert ids.count(policy.end_token_id) == 2, "after the system message and the question"

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models
from transformers import GenerationConfig, PreTrainedTokenizerFast

from contrastive_reasoning.policies.prompting import check_system, prompt_ids, render, turn_end
from contrastive_reasoning.tasks.base import ChatPrompt
from tests.tiny_models import tiny_llama, tiny_policy

PLAIN = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<answer>{% endif %}"
)
ADDS_ITS_OWN = (
    "{% if messages[0].role != 'system' %}<system>You are a helper.{% endif %}"
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<answer>"
)


REJECTS_SYSTEM = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}<user>{{ messages[0].content }}"
)
OMITS_SYSTEM = "{% for m in messages if m.role == 'user' %}<user>{{ m.content }}{% endfor %}"
DATE = "{{ strftime_now('%d %b %Y') }} {{ strftime_now(\"%Y-%m-%d\") }} {{ date_string }}"
DIALOGUE = ChatPrompt([("system", "Be short."), ("user", "1 + 1?"), ("assistant", "2"), ("user", "2 + 2?")])
LONG = ChatPrompt([("system", "Be long."), ("user", "3 4")])


def with_template(tokenizer: PreTrainedTokenizerFast, template: str | None) -> PreTrainedTokenizerFast:
    changed = copy.deepcopy(tokenizer)
    changed.chat_template = template
    return changed


@pytest.mark.parametrize(
    ("template", "used", "text"),
    [
        (PLAIN, True, "<user>3 4\n<answer>"),
        (PLAIN, None, "<user>3 4\n<answer>"),
        (PLAIN, False, "3 4\n"),
        (None, None, "3 4\n"),
        (None, False, "3 4\n"),
    ],
)
def test_template_is_used_if_there_is_one_and_settings_allow_it(
    tokenizer: PreTrainedTokenizerFast, template: str | None, used: bool | None, text: str
) -> None:
    assert render(with_template(tokenizer, template), "3 4\n", chat_template=used) == text


TEMPLATED = "<system>Be short.<user>1 + 1?<assistant>2<user>2 + 2?<answer>"


@pytest.mark.parametrize(
    ("template", "used", "text"),
    [
        (PLAIN, True, TEMPLATED),
        (PLAIN, None, TEMPLATED),
        (ADDS_ITS_OWN, True, TEMPLATED),
        (None, None, "Be short.\n\n1 + 1?\n\n2\n\n2 + 2?"),
    ],
)
def test_conversation_is_rendered_turn_by_turn(
    tokenizer: PreTrainedTokenizerFast, template: str | None, used: bool | None, text: str
) -> None:
    rendered = render(with_template(tokenizer, template), DIALOGUE, chat_template=used)
    assert (type(rendered), rendered) == (str, text)


@pytest.mark.parametrize(
    ("template", "system", "prompt", "text"),
    [
        (REJECTS_SYSTEM, "none", "3 4", "<user>3 4"),
        (ADDS_ITS_OWN, "none", "3 4", "<system><user>3 4<answer>"),
        (ADDS_ITS_OWN, "default", "3 4", "<system>You are a helper.<user>3 4<answer>"),
        (PLAIN, "default", "3 4", "<user>3 4<answer>"),
        (None, "default", "3 4", "3 4"),
        (PLAIN, "Be short.", "3 4", "<system>Be short.<user>3 4<answer>"),
        (PLAIN, "Be short.", LONG, "<system>Be long.<user>3 4<answer>"),
        (ADDS_ITS_OWN, "Be short.", "3 4", "<system>Be short.<user>3 4<answer>"),
        (ADDS_ITS_OWN, "Be short.", LONG, "<system>Be long.<user>3 4<answer>"),
    ],
)
def test_system_message_is_that_of_settings_unless_prompt_has_one(
    tokenizer: PreTrainedTokenizerFast, template: str | None, system: str, prompt: str, text: str
) -> None:
    assert render(with_template(tokenizer, template), prompt, chat_template=None, system=system) == text


def test_date_in_template_is_always_the_same(tokenizer: PreTrainedTokenizerFast) -> None:
    assert render(with_template(tokenizer, DATE), "3 4", chat_template=True) == "26 Jul 2024 2024-07-26 26 Jul 2024"


@pytest.mark.parametrize(("template", "named"), [(None, "chat template"), (REJECTS_SYSTEM, r"template.*\(no system\)")])
def test_render_without_template_or_without_its_system_message_raises(
    tokenizer: PreTrainedTokenizerFast, template: str | None, named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        render(with_template(tokenizer, template), DIALOGUE, chat_template=True)


def test_prompt_ids_contain_beginning_token_once(tokenizer: PreTrainedTokenizerFast) -> None:
    start = tokenizer.bos_token_id
    assert prompt_ids(tokenizer, "3 4", chat_template=False)[0] == start
    twice = with_template(tokenizer, "<bos>{{ messages[0].content }}")
    assert prompt_ids(twice, "3 4", chat_template=True).count(start) == 1


@pytest.mark.parametrize("written", ["", "{{ bos_token }}"])
def test_prompt_ids_of_a_template_are_those_of_apply_chat_template(
    tokenizer: PreTrainedTokenizerFast, written: str
) -> None:
    """A template without a beginning token, as TinyLlama's, gets none, though the tokenizer adds one to plain texts."""
    made = with_template(tokenizer, written + PLAIN)
    turns = [{"role": "user", "content": "3 4"}]
    expected: Any = made.apply_chat_template(turns, add_generation_prompt=True, tokenize=True, return_dict=False)
    assert prompt_ids(made, "3 4", chat_template=True) == expected
    assert (expected[0] == made.bos_token_id) == bool(written)


TURNS = (
    "{% for one in messages %}<{{ one.role }}>{{ one.content }}"
    "{% if one.role == 'assistant' %} <|end|>\n{% endif %}{% endfor %}"
)


def test_turn_end_token_is_among_eos_token_ids(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    """As for a base model whose settings name another end token, under the template of its chat variant."""
    changed = with_template(tokenizer, TURNS)
    changed.add_special_tokens({"additional_special_tokens": ["<|end|>"]})
    end = changed.convert_tokens_to_ids("<|end|>")
    assert [turn_end(changed, chat_template=used) for used in (True, None, False)] == [end, end, None]
    for used, expected in ((True, [changed.eos_token_id, end]), (False, [changed.eos_token_id])):
        policy = tiny_policy(changed, tiny_llama(changed, hidden_size=16), chat_template=used)
        assert [*policy.eos_token_ids] == expected
        policy.save(tmp_path / str(used))
        saved = GenerationConfig.from_pretrained(tmp_path / str(used))
        assert saved.eos_token_id == expected, "other libraries, which read only this, end there too"


@pytest.mark.parametrize("template", [PLAIN, ADDS_ITS_OWN, "{{ raise_exception('one message only') }}", "nothing"])
def test_turn_end_is_none_if_template_writes_no_end_token(tokenizer: PreTrainedTokenizerFast, template: str) -> None:
    assert turn_end(with_template(tokenizer, template), chat_template=None) is None


def from_scratch(begin: str) -> PreTrainedTokenizerFast:
    """A tokenizer with special tokens of other models; it adds none of them to a text."""
    vocabulary = ["<|im_start|>", "<|im_end|>", *" abcdefghijklmnopqrstuvwxyz<|_>/.\n"]
    characters = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(vocabulary)}, merges=[]))
    characters.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    return PreTrainedTokenizerFast(tokenizer_object=characters, bos_token=begin, eos_token="<|im_end|>")


def test_prompt_ids_omit_beginning_token_if_tokenizer_adds_none() -> None:
    tokenizer = from_scratch("<|im_start|>")
    assert tokenizer.convert_ids_to_tokens(prompt_ids(tokenizer, "ab", chat_template=False)) == ["a", "b"]


DEFAULT = (
    "{% if messages[0].role != 'system' %}<|im_start|>system step by step.<|im_end|>{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }} {{ m.content }}<|im_end|>{% endfor %}"
)


def test_special_token_quoted_in_prompt_is_encoded_as_text() -> None:
    tokenizer = with_template(from_scratch("<|im_start|>"), DEFAULT)
    plain, quoting = (prompt_ids(tokenizer, text, chat_template=True) for text in ("a b", "a <|im_end|> b"))
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert plain.count(end) == quoting.count(end) == 2
    assert "<|im_end|>" in tokenizer.decode([token for token in quoting if token != end]).replace(" ", "")


def test_policy_prompt_ids_contain_system_message(tokenizer: PreTrainedTokenizerFast) -> None:
    changed = with_template(tokenizer, ADDS_ITS_OWN)
    model = tiny_llama(changed, hidden_size=16).model
    for system, shown in (("none", ""), ("default", "You are a helper."), ("Add them.", "Add them.")):
        policy = tiny_policy(changed, model, chat_template=True, system=system)
        text = changed.decode(policy.prompt_ids("3 4"), skip_special_tokens=True)
        assert f"<system>{shown}<user>" in text


@pytest.mark.parametrize(
    ("template", "used", "system", "named"),
    [
        (REJECTS_SYSTEM, True, "Be short.", "shows no"),
        (OMITS_SYSTEM, None, "Be short.", "shows no"),
        (None, None, "Be short.", "tokenizer has none"),
        (PLAIN, False, "Be short.", r"policy\.chat_template"),
        (PLAIN, True, " ", "' '"),
    ],
)
def test_check_system_rejects_message_not_shown_in_prompts(
    tokenizer: PreTrainedTokenizerFast, template: str | None, used: bool | None, system: str, named: str
) -> None:
    changed = with_template(tokenizer, template)
    with pytest.raises(ValueError, match=rf"^policy\.system.*{named}"):
        check_system(changed, chat_template=used, system=system)
    model = tiny_llama(changed, hidden_size=16).model
    with pytest.raises(ValueError, match=r"^policy\.system"):
        tiny_policy(changed, model, chat_template=used, system=system)
    for word in ("none", "default"):
        assert check_system(changed, chat_template=used, system=word) is None

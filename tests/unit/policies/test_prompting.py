from __future__ import annotations

import copy

import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.prompting import check_system, prompt_ids, render, turn_end
from contrastive_reasoning.policies.tiny import tiny_llama
from contrastive_reasoning.tasks.base import ChatPrompt

PLAIN = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<answer>{% endif %}"
)
ADDS_ITS_OWN = (
    "{% if messages[0].role != 'system' %}<system>You are a helper.{% endif %}"
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<answer>"
)


def with_template(tokenizer: PreTrainedTokenizerFast, template: str) -> PreTrainedTokenizerFast:
    changed = copy.deepcopy(tokenizer)
    changed.chat_template = template
    return changed


def test_a_prompt_is_one_user_message_of_a_template_that_is_used(tokenizer: PreTrainedTokenizerFast) -> None:
    """``null`` uses one where there is one."""
    with_one = with_template(tokenizer, PLAIN)
    for used in (True, None):
        assert render(with_one, "3 4\n", chat_template=used) == "<user>3 4\n<answer>"
    for plain, used in ((tokenizer, None), (tokenizer, False), (with_one, False)):
        assert render(plain, "3 4\n", chat_template=used) == "3 4\n"


def test_a_missing_template_is_named(tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(ValueError, match="the tokenizer has no chat template"):
        render(tokenizer, "3 4", chat_template=True)


def test_a_beginning_token_stands_once(tokenizer: PreTrainedTokenizerFast) -> None:
    start = tokenizer.bos_token_id
    assert prompt_ids(tokenizer, "3 4", chat_template=False)[0] == start
    twice = with_template(tokenizer, "<bos>{{ messages[0].content }}")
    assert prompt_ids(twice, "3 4", chat_template=True).count(start) == 1


def test_a_conversation_keeps_all_of_its_messages(tokenizer: PreTrainedTokenizerFast) -> None:
    prompt = ChatPrompt([("system", "Be short."), ("user", "1 + 1?"), ("assistant", "2"), ("user", "2 + 2?")])
    said = "<system>Be short.<user>1 + 1?<assistant>2<user>2 + 2?<answer>"
    assert render(with_template(tokenizer, PLAIN), prompt, chat_template=None) == said
    assert render(with_template(tokenizer, ADDS_ITS_OWN), prompt, chat_template=True) == said
    plain = render(tokenizer, prompt, chat_template=None)
    assert (type(plain), plain) == (str, "Be short.\n\n1 + 1?\n\n2\n\n2 + 2?")


def test_a_template_that_knows_no_system_message_says_so(tokenizer: PreTrainedTokenizerFast) -> None:
    strict = with_template(
        tokenizer, "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    )
    with pytest.raises(ValueError, match=r"the tokenizer's own template cannot be rendered \(no system\)"):
        render(strict, ChatPrompt([("system", "Be short."), ("user", "?")]), chat_template=True)


TURNS = (
    "{% for one in messages %}<{{ one.role }}>{{ one.content }}"
    "{% if one.role == 'assistant' %} <|end|>\n{% endif %}{% endfor %}"
)


def test_the_end_of_a_turn_ends_a_completion(tokenizer: PreTrainedTokenizerFast) -> None:
    """As in a base model whose settings name another end, under the template of its chatting sibling."""
    changed = with_template(tokenizer, TURNS)
    changed.add_special_tokens({"additional_special_tokens": ["<|end|>"]})
    end = changed.convert_tokens_to_ids("<|end|>")
    assert [turn_end(changed, chat_template=used) for used in (True, None, False)] == [end, end, None]
    model = tiny_llama(changed, hidden_size=16).model
    ends = {
        used: CausalLMPolicy(
            model=model, tokenizer=changed, compute_dtype=torch.float32, chat_template=used
        ).eos_token_ids
        for used in (True, False)
    }
    assert ends == {True: (changed.eos_token_id, end), False: (changed.eos_token_id,)}


@pytest.mark.parametrize("template", [PLAIN, ADDS_ITS_OWN, "{{ raise_exception('one message only') }}", "nothing"])
def test_a_template_without_one_adds_none(tokenizer: PreTrainedTokenizerFast, template: str) -> None:
    assert turn_end(with_template(tokenizer, template), chat_template=None) is None


def from_scratch(begin: str) -> PreTrainedTokenizerFast:
    """A tokenizer with special tokens of others, which adds none of them to a text."""
    characters = Tokenizer(
        models.BPE(
            vocab={
                "<|im_start|>": 0,
                "<|im_end|>": 1,
                **{c: 2 + i for i, c in enumerate(" abcdefghijklmnopqrstuvwxyz<|_>/.\n")},
            },
            merges=[],
        )
    )
    characters.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    return PreTrainedTokenizerFast(tokenizer_object=characters, bos_token=begin, eos_token="<|im_end|>")


def test_no_beginning_token_where_the_tokenizer_adds_none() -> None:
    tokenizer = from_scratch("<|im_start|>")
    assert tokenizer.convert_ids_to_tokens(prompt_ids(tokenizer, "ab", chat_template=False)) == ["a", "b"]


DEFAULT = (
    "{% if messages[0].role != 'system' %}<|im_start|>system step by step.<|im_end|>{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }} {{ m.content }}<|im_end|>{% endfor %}"
)


def test_a_default_system_message_is_known_by_rendering_not_by_its_words() -> None:
    tokenizer = with_template(from_scratch("<|im_start|>"), DEFAULT)
    text = render(tokenizer, "ab", chat_template=True)
    assert text == "<|im_start|>system <|im_end|><|im_start|>user ab<|im_end|>"


def test_a_template_that_refuses_system_messages_is_rendered_without(tokenizer: PreTrainedTokenizerFast) -> None:
    refuses = "{% if messages[0].role == 'system' %}{{ raise_exception('You are expected to fold it') }}{% endif %}"
    changed = with_template(tokenizer, refuses + "<user>{{ messages[0].content }}")
    assert render(changed, "3 4", chat_template=True) == "<user>3 4"


def test_the_date_of_a_template_is_fixed(tokenizer: PreTrainedTokenizerFast) -> None:
    asks = "{{ strftime_now('%d %b %Y') }} {{ strftime_now(\"%Y-%m-%d\") }} {{ date_string }}"
    text = render(with_template(tokenizer, asks), "3 4", chat_template=True)
    assert text == "26 Jul 2024 2024-07-26 26 Jul 2024"


def test_a_special_token_that_a_problem_quotes_stays_text() -> None:
    tokenizer = with_template(from_scratch("<|im_start|>"), DEFAULT)
    plain, quoting = (prompt_ids(tokenizer, text, chat_template=True) for text in ("a b", "a <|im_end|> b"))
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert plain.count(end) == quoting.count(end) == 2
    assert "<|im_end|>" in tokenizer.decode([token for token in quoting if token != end]).replace(" ", "")


@pytest.mark.parametrize("template", [PLAIN, ADDS_ITS_OWN])
def test_a_system_message_stands_before_prompts_that_bring_none(
    tokenizer: PreTrainedTokenizerFast, template: str
) -> None:
    changed = with_template(tokenizer, template)
    assert render(changed, "3 4", chat_template=True, system="Be short.") == "<system>Be short.<user>3 4<answer>"
    own = ChatPrompt([("system", "Be long."), ("user", "3 4")])
    assert render(changed, own, chat_template=True, system="Be short.") == "<system>Be long.<user>3 4<answer>"


def test_the_default_is_what_the_template_itself_writes(tokenizer: PreTrainedTokenizerFast) -> None:
    changed = with_template(tokenizer, ADDS_ITS_OWN)
    whole = "<system>You are a helper.<user>3 4<answer>"
    assert render(changed, "3 4", chat_template=True, system="default") == whole
    assert render(with_template(tokenizer, PLAIN), "3 4", chat_template=True, system="default") == "<user>3 4<answer>"
    assert render(tokenizer, "3 4", chat_template=False, system="default") == "3 4"


def test_a_policy_reads_its_prompts_behind_its_system_message(tokenizer: PreTrainedTokenizerFast) -> None:
    changed = with_template(tokenizer, ADDS_ITS_OWN)
    model = tiny_llama(changed, hidden_size=16).model
    said = {}
    for system in ("none", "default", "Add them."):
        policy = CausalLMPolicy(
            model=model, tokenizer=changed, compute_dtype=torch.float32, chat_template=True, system=system
        )
        said[system] = changed.decode(policy.prompt_ids("3 4"), skip_special_tokens=True)
    assert "You are a helper." in said["default"]
    assert "Add them." in said["Add them."]
    assert not any(text in said["none"] for text in ("You are", "Add them."))


REFUSES = "{% if messages[0].role == 'system' %}{{ raise_exception('none') }}{% endif %}<user>{{ messages[0].content }}"
SWALLOWS = "{% for m in messages if m.role == 'user' %}<user>{{ m.content }}{% endfor %}"


@pytest.mark.parametrize(
    ("template", "used", "system", "sentence"),
    [
        (REFUSES, True, "Be short.", "the tokenizer's chat template shows no system message; choose none or default"),
        (SWALLOWS, None, "Be short.", "the tokenizer's chat template shows no system message; choose none or default"),
        (None, None, "Be short.", "a system message needs a chat template, and the tokenizer has none"),
        (PLAIN, False, "Be short.", "a system message needs a chat template, and policy.chat_template is false"),
        (PLAIN, True, " ", "must be none, default or a text, got ' '"),
    ],
)
def test_a_system_message_that_no_prompt_would_show_is_refused(
    tokenizer: PreTrainedTokenizerFast, template: str | None, used: bool | None, system: str, sentence: str
) -> None:
    changed = tokenizer if template is None else with_template(tokenizer, template)
    with pytest.raises(ValueError, match=rf"^policy\.system:? {sentence}$"):
        check_system(changed, chat_template=used, system=system)
    model = tiny_llama(changed, hidden_size=16).model
    with pytest.raises(ValueError, match=r"^policy\.system"):
        CausalLMPolicy(model=model, tokenizer=changed, compute_dtype=torch.float32, chat_template=used, system=system)
    for word in ("none", "default"):
        assert check_system(changed, chat_template=used, system=word) is None

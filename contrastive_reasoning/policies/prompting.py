"""Rendering of prompts by a model's chat template, and their token ids.

A plain prompt is one user message. Before it comes no system message, the template's own default one, or a given text;
a prompt with its own system message keeps it. The template's date is fixed. Special tokens quoted in a problem are
encoded as text, so they cannot end a turn.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date
from typing import Any

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from contrastive_reasoning.policies.tiny import BOS

NO_SYSTEM, DEFAULT_SYSTEM = "none", "default"
"""No system message, and the template's own default one; any other string is the message itself."""
TEMPLATE_DATE = date(2024, 7, 26)
"""The date that a template uses as today, so that the prompts of a run are the same if it resumes on another day.

The date that Llama 3's template falls back to.
"""
_NOW = re.compile(r"strftime_now\(\s*(?P<quote>['\"])(?P<form>[^'\"]*)(?P=quote)\s*\)")
"""The call by which a template gets the current date. ``transformers`` does not pass a custom function to it."""
_CONTENT = "as-is"
_QUOTED = 0xF0000
"""Private-use characters from here on replace special tokens that a prompt quotes, while a template is rendered."""


def render(
    tokenizer: PreTrainedTokenizerBase, prompt: str, *, chat_template: bool | None, system: str = NO_SYSTEM
) -> str:
    """The prompt as the model reads it: its text, or its messages in the tokenizer's chat template.

    With ``chat_template`` None a template is used if there is one. ``system`` is ``none``, ``default`` (the template's
    own) or the text of a system message, for prompts that have none.

    Raises:
        ValueError: if ``chat_template`` is true for a tokenizer that has none, or the template cannot be rendered
            (``transformers`` renders it in a sandbox, which rejects templates that access Python).
    """
    return _render(tokenizer, prompt, {}, chat_template=chat_template, system=system)


def prompt_ids(
    tokenizer: PreTrainedTokenizerBase, prompt: str, *, chat_template: bool | None, system: str = NO_SYSTEM
) -> list[int]:
    """Token ids of one prompt.

    A chat template writes all special tokens itself, as for ``apply_chat_template`` and servers. A prompt without one
    begins with the beginning-of-text token if the tokenizer adds it.
    """
    quoted = _quote_special_tokens(tokenizer, _turns(prompt, system))
    text = _render(tokenizer, prompt, quoted, chat_template=chat_template, system=system)
    ids: list[int] = []
    for piece, literal in _pieces(text, quoted):
        encoded: Any = tokenizer(piece, add_special_tokens=False, split_special_tokens=literal)
        ids += encoded["input_ids"]
    start: Any = tokenizer.bos_token_id
    if chat_template is not False and tokenizer.chat_template:
        return ids
    return ids if start is None or ids[:1] == [start] or not _adds(tokenizer, start) else [int(start), *ids]


def check_system(tokenizer: PreTrainedTokenizerBase, *, chat_template: bool | None, system: str) -> None:
    """Checks that prompts will show the system message.

    Raises ValueError for an empty one, and for a text without a chat template, or with one that does not show it.
    """
    if not system.strip():
        raise ValueError(f"policy.system must be {NO_SYSTEM}, {DEFAULT_SYSTEM} or a text, got {system!r}")
    if system in (NO_SYSTEM, DEFAULT_SYSTEM):
        return
    if chat_template is False or not tokenizer.chat_template:
        why = "policy.chat_template is false" if chat_template is False else "the tokenizer has none"
        raise ValueError(f"policy.system: a system message needs a chat template, and {why}")
    turns = [{"role": "system", "content": system}, {"role": "user", "content": _CONTENT}]
    if system.strip() not in (_try_apply(tokenizer, turns) or ""):
        raise ValueError(
            f"policy.system: the tokenizer's chat template shows no system message; choose {NO_SYSTEM} or "
            f"{DEFAULT_SYSTEM}"
        )


def turn_end(tokenizer: PreTrainedTokenizerBase, *, chat_template: bool | None) -> int | None:
    """The special token that the chat template writes after an answer; None if it writes none, or is not used.

    A base model's own settings do not name it, such as Qwen's ``<|im_end|>``, though the template writes it.
    """
    if chat_template is False or not tokenizer.chat_template:
        return None
    turns = [{"role": "user", "content": _CONTENT}, {"role": "assistant", "content": _CONTENT}]
    text = _try_apply(tokenizer, turns, answer=False)  # errors of other messages are raised by ``render``
    if text is None or _CONTENT not in text:
        return None
    ids: list[int] = tokenizer(text.rpartition(_CONTENT)[2], add_special_tokens=False)["input_ids"]  # pyright: ignore
    special = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}  # pyright: ignore
    return next((token for token in ids if token in special), None)


def _render(
    tokenizer: PreTrainedTokenizerBase, prompt: str, quoted: dict[str, str], *, chat_template: bool | None, system: str
) -> str:
    """The rendered prompt with a private-use character for each special token that the prompt itself quotes."""
    template = tokenizer.chat_template
    if chat_template is False or (chat_template is None and not template):
        return _hidden(str(prompt), quoted)
    if not template:
        raise ValueError("policy.chat_template is true, but the tokenizer has no chat template")
    messages = [{"role": role, "content": _hidden(content, quoted)} for role, content in _turns(prompt, system)]
    try:
        text = _apply(tokenizer, messages)
    except (TemplateError, OverflowError) as error:
        raise ValueError(f"policy.chat_template: the tokenizer's own template cannot be rendered ({error})") from error
    if messages[0]["role"] == "system" or system == DEFAULT_SYSTEM:
        return text
    # a template with a system message of its own, such as Qwen's, writes an empty one instead
    without_default = _try_apply(tokenizer, [{"role": "system", "content": ""}, *messages])
    return text if without_default is None or len(without_default) >= len(text) else without_default


def _turns(prompt: str, system: str) -> Sequence[tuple[str, str]]:
    """Role and content of each message of a prompt; ``system`` comes first unless the prompt has its own."""
    turns: Sequence[tuple[str, str]] = getattr(prompt, "messages", (("user", prompt),))  # a ChatPrompt of the tasks
    if system in (NO_SYSTEM, DEFAULT_SYSTEM) or turns[0][0] == "system":
        return turns
    return [("system", system), *turns]


def _apply(tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, str]], *, answer: bool = True) -> str:
    """The messages in the tokenizer's template; with ``answer``, also the beginning of the next answer."""
    template = tokenizer.get_chat_template()
    dated = _NOW.sub(lambda call: repr(TEMPLATE_DATE.strftime(call["form"])), template)
    return str(
        tokenizer.apply_chat_template(
            messages,
            chat_template=dated,
            tokenize=False,
            add_generation_prompt=answer,
            date_string=TEMPLATE_DATE.strftime("%d %b %Y"),
        )
    )


def _try_apply(
    tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, str]], *, answer: bool = True
) -> str | None:
    """``_apply``; None for a template that does not support such messages."""
    try:
        return _apply(tokenizer, messages, answer=answer)
    except (TemplateError, OverflowError):
        return None


def _quote_special_tokens(tokenizer: PreTrainedTokenizerBase, turns: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Private-use character → special token, for each special token in the text of a prompt."""
    added: Any = tokenizer.added_tokens_decoder
    # longest first: a special token may contain another one
    special = sorted((token.content for token in added.values() if token.special), key=len, reverse=True)
    text = "".join(content for _, content in turns)
    return {chr(_QUOTED + index): token for index, token in enumerate(special) if token in text}


def _hidden(text: str, quoted: dict[str, str]) -> str:
    for character, token in quoted.items():
        text = text.replace(token, character)
    return text


def _pieces(text: str, quoted: dict[str, str]) -> list[tuple[str, bool]]:
    """The text in pieces, each with whether it is literal: not a special token, even if it looks like one."""
    pieces, start = [], 0
    for place, character in enumerate(text):
        if character in quoted:
            pieces += [(text[start:place], False), (quoted[character], True)]
            start = place + 1
    return [(piece, literal) for piece, literal in [*pieces, (text[start:], False)] if piece]


def _adds(tokenizer: PreTrainedTokenizerBase, start: int) -> bool:
    """Whether the tokenizer's own encoding of a text begins with the token.

    This is also true of this project's small policies, though their tokenizers add none: transformers rebuilds Qwen2's
    without it.
    """
    encoded: Any = tokenizer("a")
    return tokenizer.bos_token == BOS or encoded["input_ids"][:1] == [start]

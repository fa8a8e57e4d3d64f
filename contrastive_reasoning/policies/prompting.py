"""From a problem's prompt to the token ids that a policy reads. Needs the tokenizer alone, no weights."""

from __future__ import annotations

from typing import Any

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

_SAID = "as-is"


def render(tokenizer: PreTrainedTokenizerBase, prompt: str, *, chat_template: bool | None) -> str:
    """The prompt as the model reads it: its text, or its messages in the tokenizer's chat template.

    A plain prompt is one message of the user.

    Args:
        tokenizer: whose template it is.
        prompt: of a problem.
        chat_template: whether to use it; None: where the tokenizer has one.

    Raises:
        ValueError: where ``chat_template`` is asked of a tokenizer that has none, or the template cannot be rendered
            (``transformers`` renders it in a sandbox: one that reaches for Python is refused).
    """
    template = tokenizer.chat_template
    if chat_template is False or (chat_template is None and not template):
        return str(prompt)
    if not template:
        raise ValueError("policy.chat_template is true, but the tokenizer has no chat template")
    turns = getattr(prompt, "messages", (("user", prompt),))  # a ChatPrompt of the tasks brings its own
    messages = [{"role": role, "content": content} for role, content in turns]
    if "You are" in str(template) and messages[0]["role"] != "system":
        # Such a template (Qwen's) writes a system message of its own where none is given; an empty one replaces it.
        messages.insert(0, {"role": "system", "content": ""})
    try:
        return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
    except (TemplateError, OverflowError) as error:
        raise ValueError(f"policy.chat_template: the tokenizer's own template cannot be rendered ({error})") from error


def prompt_ids(tokenizer: PreTrainedTokenizerBase, prompt: str, *, chat_template: bool | None) -> list[int]:
    """Token ids of one prompt, with the beginning-of-text token where the tokenizer has one."""
    encoded: Any = tokenizer(render(tokenizer, prompt, chat_template=chat_template), add_special_tokens=False)
    ids: list[int] = list(encoded["input_ids"])
    start: Any = tokenizer.bos_token_id
    return ids if start is None or ids[:1] == [start] else [int(start), *ids]


def turn_end(tokenizer: PreTrainedTokenizerBase, *, chat_template: bool | None) -> int | None:
    """The special token that the chat template writes behind an answer; None where it writes none, or is not used.

    A base model's own settings do not name it, ``<|im_end|>`` of Qwen's say, though the template has it written.
    """
    if chat_template is False or not tokenizer.chat_template:
        return None
    turns = [{"role": "user", "content": _SAID}, {"role": "assistant", "content": _SAID}]
    try:
        text = str(tokenizer.apply_chat_template(turns, tokenize=False))
    except (TemplateError, OverflowError):  # it knows no answers; what it cannot render else says ``render``
        return None
    ids: list[int] = tokenizer(text.rpartition(_SAID)[2], add_special_tokens=False)["input_ids"]  # pyright: ignore
    special = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}  # pyright: ignore
    return next((token for token in ids if token in special), None) if _SAID in text else None

"""The sentence that asks for steps and a boxed answer, in a prompt exactly once (Eq. 13 and Table 10 of CLIPO)."""

from __future__ import annotations

import re

_PUBLISHED = re.compile(
    r"Let['’]s think step by step and output the final answer (\(eg,[A-Z,. ]{1,80}\) )?within \\boxed\{\}\.?"
)
"""The published wordings: with the letters of a choice, and without."""


def with_instruction(question: str, instruction: str) -> str:
    """The question, a line end, the instruction; the question alone where it asks already, or for no instruction."""
    asked = not instruction or instruction in question or _PUBLISHED.search(question)
    return question if asked else f"{question}\n{instruction}"


def without_instruction(prompt: str) -> str:
    """The question alone; an instruction in words of one's own stays."""
    return _PUBLISHED.sub("", prompt).strip()

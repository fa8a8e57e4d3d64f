"""A question with options, one of them right: MMLU, CommonsenseQA, TruthfulQA as their authors publish them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any

from contrastive_reasoning.tasks.base import Problem
from contrastive_reasoning.tasks.formats.base import BadRow, Row
from contrastive_reasoning.tasks.formats.columns import as_text, text_at, value_at
from contrastive_reasoning.tasks.formats.instruction import with_instruction


@dataclass(frozen=True, kw_only=True)
class MultipleChoice:
    """The options are lettered under the question; the gold answer is a letter."""

    question: str
    """Column of the question."""
    options: str
    """Column of the list of options."""
    answer: str
    """Column of the right one: its letter, its index from 0, its text, or a list of marks, one of them true."""
    shuffle: bool
    """Reorder the options by a hash of the question: for sets whose right option always comes first."""
    instruction: str

    def __call__(self, row: Row, *, id: str) -> Problem:
        question, options = text_at(row, self.question), value_at(row, self.options)
        if not isinstance(options, list | tuple) or not 2 <= len(options) <= len(ascii_uppercase):
            raise BadRow(f"{self.options} must be a list of 2 to {len(ascii_uppercase)} options")
        gold = index_of(value_at(row, self.answer), options)
        order = shuffled(len(options), question) if self.shuffle else range(len(options))
        said = [as_text(option, f"an option of {self.options}") for option in options]
        lines = [f"{letter}. {said[index]}" for letter, index in zip(ascii_uppercase, order, strict=False)]
        prompt = with_instruction("\n".join([f"{question}\n\nOptions:", *lines]), self.instruction)
        return Problem(id=id, prompt=prompt, answer=ascii_uppercase[list(order).index(gold)])


def index_of(answer: Any, options: Sequence[Any]) -> int:
    """Which option is right.

    Raises:
        BadRow: where the answer names none, or several.
    """
    found: list[int] = []
    if isinstance(answer, list | tuple):
        found = [index for index, mark in enumerate(answer) if mark]
    elif isinstance(answer, int) and not isinstance(answer, bool):
        found = [answer]
    elif isinstance(answer, str):
        letter = ascii_uppercase.find(answer.strip()) if len(answer.strip()) == 1 else -1
        found = [letter] if letter >= 0 else [index for index, option in enumerate(options) if option == answer]
    if len(found) != 1 or not 0 <= found[0] < len(options):
        raise BadRow(f"the answer {answer!r} names no single one of {len(options)} options")
    return found[0]


def shuffled(count: int, question: str) -> list[int]:
    """An order of ``count`` options that depends on the question alone; the same in every process."""
    return sorted(range(count), key=lambda index: hashlib.sha256(f"{index}:{question}".encode()).digest())

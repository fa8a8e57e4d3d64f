"""What a reward function written for TRL looks like: lists in, a list of numbers out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def mentions_answer(completions: Sequence[str], answer: Sequence[str], **kwargs: Any) -> list[float | None]:
    """1 where the gold answer stands anywhere in the completion, else 0; None where a problem has no answer."""
    return [float(gold in text) if gold else None for text, gold in zip(completions, answer, strict=True)]

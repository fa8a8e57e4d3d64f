"""Completions of given lengths from ``transformers``' ``generate``: row i ends with its token number ``lengths[i]``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def processors(work: dict[str, Any], *, prompt_tokens: int, end: int) -> list[GivenLengths]:
    """What ``generate`` needs for the lengths of this work; nothing where no completion ends by itself."""
    if work["lengths"] is None:
        return []
    return [GivenLengths(work["lengths"], prompt_tokens=prompt_tokens, end=end, longest=work["max_tokens"])]


class GivenLengths:
    """A logits processor that allows the end token at a row's last token and nowhere before.

    A row whose length is that of the longest completion allowed is cut there instead, without an end token.
    """

    def __init__(self, lengths: Sequence[int], *, prompt_tokens: int, end: int, longest: int) -> None:
        self.lengths = torch.tensor(lengths)
        self.prompt_tokens, self.end, self.longest = prompt_tokens, end, longest

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        place = input_ids.shape[1] - self.prompt_tokens + 1
        ends = (self.lengths == place) & (self.lengths < self.longest)
        scores[:, self.end] = float("-inf")
        scores[ends] = float("-inf")
        scores[ends, self.end] = 0.0
        return scores

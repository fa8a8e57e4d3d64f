"""Texts as tokens for critics that read them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

Tokens = dict[str, Tensor]
"""``input_ids`` and ``attention_mask``, both (N, S) long, padded on the right."""


def tokenized(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], *, max_length: int) -> Tokens:
    """The texts as tokens, padded to the longest; one longer than ``max_length`` loses its beginning or end, as the
    tokenizer is set up. A broken byte, which a completion holds as a lone surrogate, is read as U+FFFD.

    Raises:
        ValueError: a text has no token.
    """
    readable = [text.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for text in texts]
    encoded = tokenizer(readable, padding=True, truncation=True, max_length=max_length, return_tensors="pt")
    tokens = {name: torch.as_tensor(encoded[name]) for name in ("input_ids", "attention_mask")}
    empty = (tokens["attention_mask"].sum(dim=1) == 0).nonzero().flatten().tolist()
    if empty:
        raise ValueError(f"a text critic reads at least one token, text {empty[0]} has none: {texts[empty[0]]!r}")
    return tokens

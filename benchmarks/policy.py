"""The policy of all arms in a folder, its weights random but for one thing: how likely its end token is.

Component 0 of every token's embedding is a constant, so one component h₀ of the last hidden state is nearly the same
everywhere; the head being tied, the end token's own component 0 sets its logit against all others:

    P(end) = e^{h₀ c} / (e^{h₀ c} + Σ_v e^{h₀ + …})   ⇒   c = 1 + log(n p / (1 − p)) / h₀    for n ordinary tokens
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from pathlib import Path
from typing import Any

import torch

from benchmarks.models import VOCABULARY
from contrastive_reasoning.policies.tiny import TinyArchitecture, TinyModel, tiny_model

NEVER = -3.0
"""Component 0 of a token that is not to be drawn: its logit lies about 4 h₀ below the others."""


def save_policy(folder: Path, tokenizer: Any, *, shape: TinyArchitecture, end_share: float) -> None:
    """Write policy and tokenizer.

    Args:
        folder: where to.
        tokenizer: from ``train_tokenizer``.
        shape: of the policy; tokens that the tokenizer does not have are never drawn.
        end_share: the probability of the end token at every token; 0: it is never drawn.
    """
    model = tiny_model(shape, tokenizer, seed=0)
    set_end_share(model, [tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id], end_share)
    if shape.vocab_size > VOCABULARY:
        add_tokens(model, shape.vocab_size)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@torch.no_grad()
def set_end_share(model: TinyModel, specials: Sequence[int], share: float) -> None:
    """Make the last of the special tokens, the end, as likely as asked at every token; the others are never drawn."""
    embedding: Any = model.get_input_embeddings().weight
    embedding[:, 0] = 1.0
    embedding[list(specials)] = 0.0
    embedding[list(specials), 0] = NEVER
    if share > 0:
        generator = torch.Generator().manual_seed(0)
        ids = torch.randint(len(specials), len(embedding), (8, 64), generator=generator)
        constant = float(model.base_model(input_ids=ids).last_hidden_state[..., 0].mean())
        embedding[specials[-1], 0] = 1 + log((len(embedding) - len(specials)) * share / (1 - share)) / constant


@torch.no_grad()
def add_tokens(model: TinyModel, vocabulary: int) -> None:
    """Make the vocabulary as large as asked by tokens that are never drawn: the work of a large head is done."""
    known = model.get_input_embeddings().num_embeddings
    model.resize_token_embeddings(vocabulary, mean_resizing=False)
    embedding: Any = model.get_input_embeddings().weight
    embedding[known:] = 0.0
    embedding[known:, 0] = NEVER

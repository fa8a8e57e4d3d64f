"""GRPO with a KL term on ranks, by policies whose projection to the vocabulary is a weight of its own."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch

from contrastive_reasoning.objectives import GRPO, K3, FullKL, TokenMean
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.tiny import tiny_llama
from tests.unit.lightning_modules import grpo_kit
from tests.unit.lightning_modules.ranks_kit import Result, grpo


def untied(seed: int) -> CausalLMPolicy:
    """As the kit's own policy, but ``lm_head.weight``, which is read outside its module's forward, is no embedding."""
    tied = tiny_llama(grpo_kit.TOKENIZER, hidden_size=32)
    config = deepcopy(tied.config)
    config.tie_word_embeddings = False
    kind: Any = type(tied)
    model = kind(config)
    assert model.lm_head.weight is not model.model.embed_tokens.weight
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.normal_(std=0.15, generator=generator)
    return CausalLMPolicy(
        model=model, tokenizer=grpo_kit.TOKENIZER, compute_dtype=torch.float32, chat_template=False, chunk=16
    )


def objective(kl: K3 | FullKL) -> GRPO:
    """No ratio reaches these bounds: at one that does, rounding decides whether a token has a gradient."""
    return GRPO(clip_low=0.9, clip_high=9.0, dual_clip=None, kl_weight=0.1, kl=kl, aggregation=TokenMean())


def with_reference(name: str, kl: K3 | FullKL, *, level: str, offload: bool) -> Result:
    return grpo(
        name,
        steps=2,
        level=level,
        policy=untied(seed=1),
        reference=untied(seed=2),
        offload_reference=offload,
        objective=objective(kl),
    )


def kl(name: str, *, level: str) -> Result:
    """An estimate from the sampled tokens; the reference waits beside."""
    return with_reference(name, K3(max_log_ratio=20.0, max_value=10.0), level=level, offload=True)


def full_kl(name: str, *, level: str) -> Result:
    """Over the whole vocabulary: both projections are read twice, and again in backward."""
    return with_reference(name, FullKL(), level=level, offload=False)

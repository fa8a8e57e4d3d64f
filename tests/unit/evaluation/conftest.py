"""A policy with random weights, whose completions differ in length."""

from __future__ import annotations

import pytest
import torch

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.tiny import train_tokenizer
from tests.tiny_models import tiny_llama, tiny_policy


@pytest.fixture(scope="session")
def policy() -> CausalLMPolicy:
    texts = ["Question 1 of small? Box it.", *(f"Say {i}:" for i in range(12))]
    tokenizer = train_tokenizer(texts, vocab_size=270)
    model = tiny_llama(tokenizer, hidden_size=32)
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        for parameter in model.parameters():
            parameter.normal_(std=0.2)
    return tiny_policy(tokenizer, model)

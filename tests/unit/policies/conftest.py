from __future__ import annotations

from functools import cache

import pytest
from transformers import PreTrainedTokenizerFast

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.tiny import train_tokenizer
from tests.tiny_models import tiny_llama, tiny_policy, tiny_qwen2

PROMPTS = ["Numbers: [21, 16, 17, 26], target: 46\n", "Numbers: [3, 4], target: 12\n"]
COMPLETIONS = ["21+16=37;37-17=20;26+20=46", "4*3=12"]


@cache
def trained_tokenizer(kind: str) -> PreTrainedTokenizerFast:
    return train_tokenizer([*PROMPTS, *COMPLETIONS] * 10, vocab_size=320, kind=kind)


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    return trained_tokenizer("llama")


@pytest.fixture(params=["llama", "qwen2"])
def policy(request: pytest.FixtureRequest) -> CausalLMPolicy:
    tokenizer = trained_tokenizer(request.param)
    build = tiny_llama if request.param == "llama" else tiny_qwen2
    return tiny_policy(tokenizer, build(tokenizer, seed=1))

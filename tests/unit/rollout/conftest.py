"""Tiny policies of both architectures and prompts of different lengths."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.tiny import train_tokenizer
from contrastive_reasoning.tasks.base import Problem
from tests.tiny_models import tiny_llama, tiny_policy, tiny_qwen2

NUMBERS = [(3, 4), (21, 16, 17, 26), (1, 2, 3), (49, 48, 47, 46), (5,)]


@pytest.fixture(scope="session")
def byte_level() -> PreTrainedTokenizerFast:
    return train_tokenizer([problem.prompt for problem in _problems()] + ["21+16=37;37-17=20"], vocab_size=280)


@pytest.fixture(scope="session")
def policies(byte_level: PreTrainedTokenizerFast) -> dict[str, CausalLMPolicy]:
    """Weights with a large spread: completions differ, and some of them end before the token limit."""
    by_name = {}
    for name, build in (("llama", tiny_llama), ("qwen2", tiny_qwen2)):
        model = build(byte_level, hidden_size=32)
        with torch.no_grad(), torch.random.fork_rng():
            torch.manual_seed(1)
            for parameter_name, parameter in model.named_parameters():
                if parameter.ndim == 2 or parameter_name.endswith("bias"):
                    parameter.normal_(std=0.15)
        by_name[name] = tiny_policy(byte_level, model.train())
    return by_name


@pytest.fixture(scope="session")
def policy(policies: dict[str, CausalLMPolicy]) -> CausalLMPolicy:
    return policies["llama"]


@pytest.fixture(params=["llama", "qwen2"])
def any_policy(request: pytest.FixtureRequest, policies: dict[str, CausalLMPolicy]) -> CausalLMPolicy:
    return policies[request.param]


@pytest.fixture(scope="session")
def problems() -> Sequence[Problem]:
    return _problems()


def _problems() -> list[Problem]:
    return [Problem(id=str(n), prompt=f"Numbers: {list(n)}, target: {sum(n)}\n", answer="") for n in NUMBERS]

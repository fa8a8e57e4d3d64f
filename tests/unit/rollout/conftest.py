"""Tiny policies of both architectures and prompts of different lengths."""

from __future__ import annotations

from functools import partial

import pytest
from transformers import PreTrainedTokenizerFast

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.tiny import train_tokenizer
from contrastive_reasoning.tasks.base import Problem
from tests.tiny_models import tiny_llama, tiny_policy, tiny_qwen2
from tests.unit.rollout.rollout_kit import Problems, with_spread

NUMBERS = [(3, 4), (21, 16, 17, 26), (1, 2, 3), (49, 48, 47, 46), (5,)]


@pytest.fixture(scope="session")
def byte_level() -> PreTrainedTokenizerFast:
    return train_tokenizer([problem.prompt for problem in _problems()] + ["21+16=37;37-17=20"], vocab_size=280)


@pytest.fixture(scope="session")
def policies(byte_level: PreTrainedTokenizerFast) -> dict[str, CausalLMPolicy]:
    builders = {"llama": tiny_llama, "qwen2": tiny_qwen2}
    models = {name: with_spread(partial(build, byte_level, hidden_size=32)) for name, build in builders.items()}
    return {name: tiny_policy(byte_level, model.train()) for name, model in models.items()}


@pytest.fixture(scope="session")
def policy(policies: dict[str, CausalLMPolicy]) -> CausalLMPolicy:
    return policies["llama"]


@pytest.fixture(params=["llama", "qwen2"])
def any_policy(request: pytest.FixtureRequest, policies: dict[str, CausalLMPolicy]) -> CausalLMPolicy:
    return policies[request.param]


@pytest.fixture(scope="session")
def problems() -> Problems:
    return _problems()


def _problems() -> list[Problem]:
    return [Problem(id=str(n), prompt=f"Numbers: {list(n)}, target: {sum(n)}\n", answer="") for n in NUMBERS]

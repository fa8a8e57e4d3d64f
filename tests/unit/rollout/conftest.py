"""Tiny policies of both architectures and prompts of different lengths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.tiny import train_tokenizer
from contrastive_reasoning.rollout import RolloutBatch
from contrastive_reasoning.tasks.base import Problem, Step
from tests.tiny_models import tiny_llama, tiny_policy, tiny_qwen2

Problems = Sequence[Problem]
NUMBERS = [(3, 4), (21, 16, 17, 26), (1, 2, 3), (49, 48, 47, 46), (5,)]


class PlainTask:
    """A task without problems, steps and scores. Subclasses verify."""

    name = "plain"

    def problems(self, split: str) -> Sequence[Problem]:
        return []

    def parse_steps(self, problem: Problem, completion: str) -> list[Step]:
        return []

    def scores(self, problem: Problem, completion: str) -> dict[str, float]:
        return {}


def with_spread(build: Callable[[], Any]) -> Any:
    """A model with weights of a large spread: completions differ, and some of them end before the token limit."""
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(1)
        model = build()
        for name, parameter in model.named_parameters():
            if parameter.ndim == 2 or name.endswith("bias"):
                parameter.normal_(std=0.15)
    return model


def alone(policy: CausalLMPolicy, rollouts: RolloutBatch) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B D"]]:
    """Log-probs and mean hidden states of each row by itself: no padding, no cache, no batch."""
    log_probs, states = torch.zeros_like(rollouts.old_log_probs), []
    policy.model.eval()
    for row in range(len(rollouts)):
        p, ids = row // rollouts.group_size, rollouts.completion_ids[row][rollouts.mask[row]]
        prompt = rollouts.prompt_ids[p][rollouts.prompt_mask[p]]
        with torch.no_grad():
            output = policy.model(torch.cat([prompt, ids])[None], output_hidden_states=True)
        scores = (output.logits[0, len(prompt) - 1 : -1] / rollouts.temperature).log_softmax(-1)
        log_probs[row, : len(ids)] = scores.gather(-1, ids[:, None])[:, 0]
        states.append(output.hidden_states[-1][0, len(prompt) :].mean(dim=0))
    policy.model.train()
    return log_probs, torch.stack(states)


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

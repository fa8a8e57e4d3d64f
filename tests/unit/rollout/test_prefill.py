"""``read_prompts`` packs prompts into one row; compared with a pass over each prompt with Transformers' cache."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch.testing import assert_close

from contrastive_reasoning.policies import shared_cache as prefill
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.shared_cache import read_prompts
from contrastive_reasoning.tasks.base import Problem


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
@pytest.mark.parametrize("at_once", [1, 25, 4096])
@torch.no_grad()
def test_packed_prompts_match_prompts_read_alone(
    policies: dict[str, CausalLMPolicy],
    problems: Sequence[Problem],
    kind: str,
    at_once: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy = policies[kind]
    monkeypatch.setattr(prefill, "TOKENS_AT_ONCE", at_once)
    prompts = [torch.tensor(policy.prompt_ids(problem.prompt)) for problem in problems]
    for prompt, read in zip(prompts, read_prompts(policy, prompts), strict=True):
        alone = policy.model(prompt[None], use_cache=True)
        assert_close(read.logits, alone.logits[0, -1], atol=1e-5, rtol=1e-5)
        for layer, cached in enumerate(alone.past_key_values.layers):
            assert_close(read.keys_values[layer], torch.cat([cached.keys, cached.values]), atol=1e-5, rtol=1e-5)

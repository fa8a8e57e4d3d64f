"""``Engine`` on models that ``Decoder`` does not support, and on weights of other dtypes."""

from __future__ import annotations

import copy

import pytest
import torch
from transformers import MistralConfig, PreTrainedTokenizerFast
from transformers.models.mistral import MistralForCausalLM

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.rollout import Engine, Sampling
from contrastive_reasoning.tasks.base import Problem
from tests.hf_engine import HFEngine
from tests.tiny_models import tiny_policy
from tests.unit.rollout.rollout_kit import Problems, with_spread

GREEDY = Sampling(temperature=0.0, top_k=None, top_p=1.0, max_tokens=24, stop=[])


@pytest.fixture(scope="module", params=[None, 8], ids=["through-its-own-forward", "with-a-window"])
def mistral(request: pytest.FixtureRequest, byte_level: PreTrainedTokenizerFast) -> CausalLMPolicy:
    """A model that ``Decoder`` does not support; with a sliding window its attention cannot be planned either."""
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "max_position_embeddings": 512}
    sizes |= {"vocab_size": len(byte_level), "num_attention_heads": 4, "num_key_value_heads": 2}
    config = MistralConfig(**sizes, sliding_window=request.param)
    policy = tiny_policy(byte_level, with_spread(lambda: MistralForCausalLM(config)))
    assert policy.plans_attention == (request.param is None)
    return policy


@pytest.mark.parametrize("budget", [150, 10_000])
def test_engine_matches_hf_engine_on_mistral(mistral: CausalLMPolicy, problems: Problems, budget: int) -> None:
    own, reference = (
        engine.generate(mistral, problems, group_size=2, sampling=GREEDY, seed=(0,), pooled=True)
        for engine in (Engine(max_batch_tokens=budget), HFEngine(max_batch_tokens=10_000))
    )
    assert torch.equal(own.completion_ids, reference.completion_ids)
    torch.testing.assert_close(own.old_log_probs, reference.old_log_probs, atol=1e-5, rtol=0)
    torch.testing.assert_close(own.pooled, reference.pooled, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_log_probs_match_policy_for_weights_in_other_dtypes(
    mistral: CausalLMPolicy, problems: Problems, dtype: torch.dtype
) -> None:
    other = tiny_policy(mistral.tokenizer, copy.deepcopy(mistral.model).to(dtype))
    rollouts = Engine(max_batch_tokens=10_000).generate(other, problems, group_size=2, sampling=GREEDY, seed=(0,))
    prompts = rollouts.prompt_ids, rollouts.prompt_mask
    owner = torch.arange(len(rollouts)) // 2
    expected = other.log_probs(*prompts, rollouts.completion_ids, rollouts.mask, owner=owner)
    tolerance = 0.1 if dtype == torch.bfloat16 else 1e-5
    torch.testing.assert_close(rollouts.old_log_probs.double(), expected.detach().double(), atol=tolerance, rtol=0)


def test_engine_rejects_a_prompt_without_tokens(mistral: CausalLMPolicy) -> None:
    class Nothing(CausalLMPolicy):
        def prompt_ids(self, prompt: str) -> list[int]:
            return []

    empty = Nothing(model=mistral.model, tokenizer=mistral.tokenizer, compute_dtype=torch.float32, chat_template=False)
    with pytest.raises(ValueError, match="problem nothing"):
        Engine(max_batch_tokens=100).generate(
            empty, [Problem(id="nothing", prompt="", answer="")], group_size=2, sampling=GREEDY, seed=(0,)
        )

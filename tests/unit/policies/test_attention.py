from __future__ import annotations

import copy

import pytest
import torch
from transformers import (
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
)

from contrastive_reasoning.policies.attention import can_plan, plan_attention
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy

SIZES = {
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 16,
    "max_position_embeddings": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}
LATENT = {
    "kv_lora_rank": 8,
    "q_lora_rank": None,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "num_key_value_heads": 2,
    "n_routed_experts": 2,
    "num_experts_per_tok": 1,
    "n_group": 1,
    "topk_group": 1,
    "moe_intermediate_size": 16,
    "first_k_dense_replace": 2,
}


def test_planned_attention_without_plan_equals_sdpa(policy: CausalLMPolicy) -> None:
    ids, mask = policy.encode_prompts(["2+3=5;5*4=20", "2+3=5"])
    planned = policy.model(input_ids=ids, attention_mask=mask.long()).logits
    plain = copy.deepcopy(policy.model)
    plain.set_attn_implementation("sdpa")
    assert torch.equal(planned, plain(input_ids=ids, attention_mask=mask.long()).logits)


@pytest.mark.parametrize(
    ("model", "plans"),
    [
        (MistralForCausalLM(MistralConfig(**SIZES, sliding_window=None)), True),
        (MistralForCausalLM(MistralConfig(**SIZES, sliding_window=8)), False),
        (MistralForCausalLM(MistralConfig(**SIZES, sliding_window=None, attention_dropout=0.1)), False),
        (GPT2LMHeadModel(GPT2Config(vocab_size=32, n_embd=16, n_layer=1, n_head=2)), False),
        (DeepseekV3ForCausalLM(DeepseekV3Config(**SIZES | LATENT)), False),
        (Gemma2ForCausalLM(Gemma2Config(**SIZES, head_dim=8)), False),
    ],
    ids=["mistral", "mistral with a window", "dropout", "dropout by another name", "keys wider than values", "gemma2"],
)
def test_can_plan_accepts_only_standard_full_attention(model: PreTrainedModel, plans: bool) -> None:
    plan_attention(model)
    assert can_plan(model) is plans

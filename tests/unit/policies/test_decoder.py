"""The decoder compared with the model's own forward pass, token by token."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear
from torch.testing import assert_close
from transformers import LlamaConfig, MistralConfig, Qwen2Config
from transformers.models.llama import LlamaForCausalLM
from transformers.models.mistral import MistralForCausalLM
from transformers.models.qwen2 import Qwen2ForCausalLM

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.decoder import Decoder, _cast_product, decoder_of
from contrastive_reasoning.policies.load import LoRA
from contrastive_reasoning.policies.tiny import train_tokenizer
from tests.tiny_models import tiny_policy

SIZES: dict[str, Any] = {
    "vocab_size": 300,
    "hidden_size": 24,
    "intermediate_size": 40,
    "max_position_embeddings": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
YARN = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 16}
MODELS = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, tie_word_embeddings=True)),
    "llama-with-biases": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True)),
    "llama-wide-heads": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, head_dim=10, rms_norm_eps=1e-2)),
    "llama-yarn": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, rope_parameters=YARN)),
    "llama-gelu": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, hidden_act="gelu")),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SIZES)),
}


class CachedAttention:
    """A plan in which each token attends to all tokens read in its row so far, by transformers' formula."""

    def __init__(self) -> None:
        self.kept: dict[int, list[tuple[Tensor, Tensor]]] = {}

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, *, scaling: float) -> Tensor:
        self.kept.setdefault(layer, []).append((key, value))
        keys, values = (torch.cat([pair[i] for pair in self.kept[layer]], dim=2) for i in range(2))
        repeats = query.shape[1] // keys.shape[1]
        keys, values = (part.repeat_interleave(repeats, 1).to(query.dtype) for part in (keys, values))
        return torch.softmax(query @ keys.mT * scaling, -1) @ values


def policy_of(model: Any, dtype: torch.dtype = torch.float32) -> CausalLMPolicy:
    tokenizer = train_tokenizer(["21+16=37"], vocab_size=280)
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        for parameter in model.parameters():
            parameter.normal_(std=0.2) if parameter.ndim == 2 else parameter.add_(0.2 * torch.randn(parameter.shape))
    return tiny_policy(tokenizer, model.eval(), compute_dtype=dtype)


@torch.no_grad()
def assert_equals_model_forward(policy: CausalLMPolicy, tolerance: float) -> None:
    ids = torch.randint(0, 270, (3, 6), generator=torch.Generator().manual_seed(0))
    decoder, plan = decoder_of(policy), CachedAttention()
    assert isinstance(decoder, Decoder)
    with policy.autocast():
        expected = policy.model(ids, output_hidden_states=True)
        for t in range(ids.shape[1]):
            logits, states = decoder.read(ids[:, t], torch.full((3,), t), plan)
            assert logits.dtype == expected.logits.dtype
            assert_close(logits, expected.logits[:, t], atol=tolerance, rtol=tolerance)
            assert_close(states, expected.hidden_states[-1][:, t], atol=tolerance, rtol=tolerance, check_dtype=False)


@pytest.mark.parametrize("name", MODELS)
def test_decoder_step_equals_model_forward(name: str) -> None:
    assert_equals_model_forward(policy_of(MODELS[name]()), 1e-5)


@pytest.mark.parametrize("targets", ["all-linear", ["q_proj", "down_proj"]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_decoder_applies_adapters(targets: list[str] | str, dtype: torch.dtype) -> None:
    lora = LoRA(rank=2, alpha=4.0, dropout=0.5, target_modules=targets)
    policy = policy_of(lora.attach(MODELS["qwen2"](), seed=0), dtype)
    assert_equals_model_forward(policy, 1e-5 if dtype == torch.float32 else 0.1)


@pytest.mark.parametrize("name", ["llama", "qwen2"])
def test_decoder_step_matches_model_under_autocast_and_in_bfloat16(name: str) -> None:
    assert_equals_model_forward(policy_of(MODELS[name](), torch.bfloat16), 0.1)
    assert_equals_model_forward(policy_of(MODELS[name]().to(torch.bfloat16), torch.bfloat16), 0.1)


@pytest.mark.parametrize("rows", [1, 16, 33])
def test_weights_that_are_cast_have_the_products_of_a_linear_layer(rows: int) -> None:
    generator = torch.Generator().manual_seed(0)
    weight, bias, x = (torch.randn(size, generator=generator) for size in ((40, 24), (40,), (rows, 24)))
    half = torch.bfloat16
    for given in (None, bias.to(half)):
        expected = linear(x.to(half).float(), weight.to(half).float(), None if given is None else given.float())
        actual = _cast_product(weight.to(half), given)(x)
        assert actual.dtype == half
        assert_close(actual.float(), expected, atol=0.0, rtol=2**-8)


def test_decoder_of_unsupported_model_returns_none() -> None:
    assert decoder_of(policy_of(MistralForCausalLM(MistralConfig(**SIZES, sliding_window=None)))) is None
    windowed = Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=4, max_window_layers=0)
    assert decoder_of(policy_of(Qwen2ForCausalLM(windowed))) is None

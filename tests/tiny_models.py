"""The smallest useful models of both families, for tests."""

from __future__ import annotations

from typing import Any

import torch
from transformers import PreTrainedTokenizerFast

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.load import load_policy
from contrastive_reasoning.policies.tiny import TinyArchitecture, TinyModel, tiny_model


def tiny_llama(tokenizer: PreTrainedTokenizerFast, **sizes: int) -> TinyModel:
    """A Llama; ``sizes``: seed, hidden_size, layers."""
    return _smallest("llama", tokenizer, **sizes)


def tiny_qwen2(tokenizer: PreTrainedTokenizerFast, **sizes: int) -> TinyModel:
    """A Qwen2 of the same sizes."""
    return _smallest("qwen2", tokenizer, **sizes)


def _smallest(
    kind: str, tokenizer: PreTrainedTokenizerFast, *, seed: int = 0, hidden_size: int = 64, layers: int = 2
) -> TinyModel:
    sizes = {"hidden_size": hidden_size, "intermediate_size": 2 * hidden_size, "layers": layers}
    return tiny_model(tiny_architecture(kind=kind, **sizes), tokenizer, seed=seed)


def tiny_architecture(**changes: Any) -> TinyArchitecture:
    settings: dict[str, Any] = {
        "kind": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "layers": 2,
        "heads": 4,
        "key_value_heads": 2,
        "max_length": 512,
        "vocab_size": 320,
    }
    return TinyArchitecture(**settings | changes)


def tiny_policy(tokenizer: Any, model: Any = None, **changes: Any) -> CausalLMPolicy:
    """A policy in float32 without a chat template, by default of a narrow Llama."""
    settings: dict[str, Any] = {"compute_dtype": torch.float32, "chat_template": False}
    model = tiny_llama(tokenizer, hidden_size=16) if model is None else model
    return CausalLMPolicy(model=model, tokenizer=tokenizer, **settings | changes)


def loaded_policy(pretrained: object, **changes: Any) -> CausalLMPolicy:
    """A policy from a folder or an embedded one, in float32 without a chat template."""
    settings: dict[str, Any] = {
        "architecture": None,
        "weights_dtype": "float32",
        "compute_dtype": "float32",
        "lora": None,
        "chat_template": False,
        "trust_remote_code": False,
        "gradient_checkpointing": False,
        "compiled": False,
        "kernels": "torch",
        "seed": 0,
    }
    return load_policy(pretrained=None if pretrained is None else str(pretrained), **settings | changes)

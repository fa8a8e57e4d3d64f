"""The smallest useful models of both families, for tests."""

from __future__ import annotations

from transformers import PreTrainedTokenizerFast

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
    architecture = TinyArchitecture(
        kind=kind,
        hidden_size=hidden_size,
        intermediate_size=2 * hidden_size,
        layers=layers,
        heads=4,
        key_value_heads=2,
        max_length=512,
        vocab_size=320,
    )
    return tiny_model(architecture, tokenizer, seed=seed)

"""The shapes of policies that are measured. Weights are random: speed does not depend on them."""

from __future__ import annotations

from contrastive_reasoning.policies.tiny import TinyArchitecture

VOCABULARY = 512
"""Of the tokenizer, and of the small policy."""
HEAD_WIDTH = 32
SMALL = "small"
CONTEXT = 4096

QWEN2 = {
    "qwen2_05b": TinyArchitecture(
        kind="qwen2",
        hidden_size=896,
        intermediate_size=4864,
        layers=24,
        heads=14,
        key_value_heads=2,
        max_length=CONTEXT,
        vocab_size=151936,
    ),
    "qwen2_15b": TinyArchitecture(
        kind="qwen2",
        hidden_size=1536,
        intermediate_size=8960,
        layers=28,
        heads=12,
        key_value_heads=2,
        max_length=CONTEXT,
        vocab_size=151936,
    ),
}
"""Of Qwen2's two smallest, embeddings tied to the head as in theirs."""
MODELS = (SMALL, *QWEN2)


def architecture(model: str, *, hidden_size: int) -> TinyArchitecture:
    """The shape of that name; the width is that of ``small``."""
    return QWEN2[model] if model in QWEN2 else small(hidden_size)


def small(hidden_size: int) -> TinyArchitecture:
    """The Llama of 4 layers."""
    return TinyArchitecture(
        kind="llama",
        hidden_size=hidden_size,
        intermediate_size=hidden_size * 8 // 3,
        layers=4,
        heads=hidden_size // HEAD_WIDTH,
        key_value_heads=hidden_size // HEAD_WIDTH,
        max_length=CONTEXT,
        vocab_size=VOCABULARY,
    )

"""Shapes of the models that the papers' settings name, and of two smaller ones for a single GPU.

They are published in each one's ``config.json`` on the Hugging Face hub.

They are for planning where the hub cannot be asked; a configuration that is at hand is always preferred.
"""

from __future__ import annotations

from contrastive_reasoning.policies.shape import ModelShape

LLAMA_8B = ModelShape(
    model_type="llama",
    hidden_size=4096,
    intermediate_size=14336,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=8,
    head_dim=128,
    vocab_size=128256,
    max_position_embeddings=131072,
    tie_word_embeddings=False,
)
QWEN_HALF_B = ModelShape(
    model_type="qwen2",
    hidden_size=896,
    intermediate_size=4864,
    num_hidden_layers=24,
    num_attention_heads=14,
    num_key_value_heads=2,
    head_dim=64,
    vocab_size=151936,
    max_position_embeddings=32768,
    tie_word_embeddings=True,
)
QWEN_1B = ModelShape(
    model_type="qwen2",
    hidden_size=1536,
    intermediate_size=8960,
    num_hidden_layers=28,
    num_attention_heads=12,
    num_key_value_heads=2,
    head_dim=128,
    vocab_size=151936,
    max_position_embeddings=32768,
    tie_word_embeddings=True,
)
QWEN_3B = ModelShape(
    model_type="qwen2",
    hidden_size=2048,
    intermediate_size=11008,
    num_hidden_layers=36,
    num_attention_heads=16,
    num_key_value_heads=2,
    head_dim=128,
    vocab_size=151936,
    max_position_embeddings=32768,
    tie_word_embeddings=True,
)
QWEN_7B = ModelShape(
    model_type="qwen2",
    hidden_size=3584,
    intermediate_size=18944,
    num_hidden_layers=28,
    num_attention_heads=28,
    num_key_value_heads=4,
    head_dim=128,
    vocab_size=152064,
    max_position_embeddings=32768,
    tie_word_embeddings=False,
)
RHO_1B = ModelShape(
    model_type="llama",
    hidden_size=2048,
    intermediate_size=5632,
    num_hidden_layers=22,
    num_attention_heads=32,
    num_key_value_heads=4,
    head_dim=64,
    vocab_size=32000,
    max_position_embeddings=2048,
    tie_word_embeddings=False,
)
PUBLISHED = {
    "meta-llama/Llama-3.1-8B": LLAMA_8B,
    "meta-llama/Llama-3.1-8B-Instruct": LLAMA_8B,
    "Qwen/Qwen2.5-0.5B": QWEN_HALF_B,
    "Qwen/Qwen2.5-0.5B-Instruct": QWEN_HALF_B,
    "Qwen/Qwen2.5-1.5B": QWEN_1B,
    "Qwen/Qwen2.5-1.5B-Instruct": QWEN_1B,
    "Qwen/Qwen2.5-3B": QWEN_3B,
    "Qwen/Qwen2.5-3B-Instruct": QWEN_3B,
    "Qwen/Qwen2.5-7B": QWEN_7B,
    "Qwen/Qwen2.5-7B-Instruct": QWEN_7B,
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B": QWEN_7B,
    "microsoft/rho-math-1b-v0.1": RHO_1B,
}
"""Hub name → shape. The context of models of one shape may differ; nothing here is computed from it but a limit."""

"""A policy small enough for a laptop: Llama or Qwen2 architecture, a tokenizer trained on the task, nothing downloaded.

The tokenizer is a byte-level BPE with every digit as a token of its own, so that arithmetic can generalise. Recurring
phrases of the task become single tokens. Any text survives the round trip.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, PreTrainedTokenizerFast, Qwen2Config
from transformers.models.llama import LlamaForCausalLM
from transformers.models.qwen2 import Qwen2ForCausalLM
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX, Qwen2Tokenizer

from contrastive_reasoning.policies.seeded import seeded

BOS, EOS, PAD = "<bos>", "<eos>", "<pad>"
TinyModel = LlamaForCausalLM | Qwen2ForCausalLM


@dataclass(frozen=True, kw_only=True)
class TinyArchitecture:
    """Size of a tiny policy. Raises ValueError for an unknown kind or heads that do not divide the width."""

    kind: str
    """llama or qwen2."""
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    key_value_heads: int
    max_length: int
    """Context in tokens, prompt and completion together."""
    vocab_size: int
    """Maximum vocabulary size; the tokenizer stops earlier if the corpus has no more pairs to merge."""

    def __post_init__(self) -> None:
        if self.kind not in ("llama", "qwen2"):
            raise ValueError(f"architecture.kind must be llama or qwen2, got {self.kind!r}")
        if self.hidden_size % self.heads or self.heads % self.key_value_heads:
            raise ValueError(
                f"architecture.heads ({self.heads}) must divide hidden_size ({self.hidden_size}) "
                f"and be a multiple of key_value_heads ({self.key_value_heads})"
            )


def train_tokenizer(texts: Iterable[str], *, vocab_size: int, kind: str = "llama") -> PreTrainedTokenizerFast:
    """Trains a byte-level BPE on ``texts`` in which every digit is a token of its own.

    Merges may cross spaces inside a phrase, never a digit or a line. For ``qwen2`` the text is split as by Qwen2's own
    tokenizer: transformers rebuilds that class for every qwen2 folder, whatever the folder contains. A tokenizer with
    another split would silently become a different one when loaded.
    """
    own = kind != "qwen2"
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"[0-9]|\n" if own else PRETOKENIZE_REGEX), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[PAD, BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    names = {"bos_token": BOS, "eos_token": EOS, "pad_token": PAD, "clean_up_tokenization_spaces": False}
    if own:
        return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)
    state = json.loads(tokenizer.to_str())["model"]
    merges = [tuple(pair) for pair in state["merges"]]
    return Qwen2Tokenizer(vocab=state["vocab"], merges=merges, unk_token=PAD, **names)  # pyright: ignore


def tiny_model(architecture: TinyArchitecture, tokenizer: PreTrainedTokenizerFast, *, seed: int) -> TinyModel:
    """A freshly initialised model for ``tokenizer``; the same for the same seed, independent of earlier draws."""
    size: dict[str, Any] = dict(
        vocab_size=len(tokenizer),
        hidden_size=architecture.hidden_size,
        intermediate_size=architecture.intermediate_size,
        num_hidden_layers=architecture.layers,
        num_attention_heads=architecture.heads,
        num_key_value_heads=architecture.key_value_heads,
        max_position_embeddings=architecture.max_length,
        tie_word_embeddings=True,
        attention_dropout=0.0,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with seeded(seed):
        if architecture.kind == "llama":
            return LlamaForCausalLM(LlamaConfig(**size))
        return Qwen2ForCausalLM(Qwen2Config(**size))

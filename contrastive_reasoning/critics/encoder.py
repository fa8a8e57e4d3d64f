"""A text encoder from a Hugging Face checkpoint: the backbone without its language-model head, and its tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from peft import LoraConfig, inject_adapter_in_model
from torch import Tensor
from transformers import AutoModel, AutoTokenizer, PreTrainedTokenizerBase

from contrastive_reasoning.policies.load import DTYPES, REPORTING, Dtype, only_weights, require_weights, resolve
from contrastive_reasoning.policies.seeded import seeded
from contrastive_reasoning.ranges import at_least, one_of

Tokens = dict[str, Tensor]
"""``input_ids`` and ``attention_mask``, both (N, S) long, padded on the right."""


def tokenize(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], *, max_length: int) -> Tokens:
    """Tokenizes the texts and pads them to the longest.

    A text longer than ``max_length`` loses its beginning or end, according to the tokenizer's truncation side. A broken
    byte, which a completion holds as a lone surrogate, is read as U+FFFD.

    Raises ValueError: a text has no token.
    """
    readable = [text.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for text in texts]
    encoded = tokenizer(readable, padding=True, truncation=True, max_length=max_length, return_tensors="pt")
    tokens = {name: torch.as_tensor(encoded[name]) for name in ("input_ids", "attention_mask")}
    empty = (tokens["attention_mask"].sum(dim=1) == 0).nonzero().flatten().tolist()
    if empty:
        raise ValueError(f"a text critic reads at least one token, text {empty[0]} has none: {texts[empty[0]]!r}")
    return tokens


@dataclass(frozen=True, kw_only=True)
class TextEncoder:
    """A backbone and its tokenizer."""

    backbone: torch.nn.Module
    """Takes ``input_ids`` and ``attention_mask`` and returns ``last_hidden_state``."""
    tokenizer: PreTrainedTokenizerBase
    """Pads on the right."""
    width: int
    """The width of the hidden states."""


@runtime_checkable
class Training(Protocol):
    """Selects the weights of a backbone that are trained; prepares the backbone in place, from eval mode."""

    def __call__(self, backbone: torch.nn.Module) -> None: ...


@dataclass(frozen=True, kw_only=True)
class FullTraining:
    """All weights are trained."""

    def __call__(self, backbone: torch.nn.Module) -> None:
        backbone.requires_grad_(True).train()


@dataclass(frozen=True, kw_only=True)
class Frozen:
    """Only the critic's own weights are trained; the backbone stays in eval mode, without dropout."""

    def __call__(self, backbone: torch.nn.Module) -> None:
        backbone.requires_grad_(False)


@dataclass(frozen=True, kw_only=True)
class LoRATraining:
    """Low-rank adapters in fp32 are trained, W + (alpha / rank)·B A, arXiv:2106.09685.

    Raises ValueError for a rank below 1.
    """

    rank: int
    alpha: float
    dropout: float
    target_modules: Sequence[str] | str
    """Names of the linear layers, or ``all-linear``."""
    seed: int
    """Of the initial A."""

    def __post_init__(self) -> None:
        at_least(1, rank=self.rank)

    def __call__(self, backbone: torch.nn.Module) -> None:
        targets = self.target_modules if isinstance(self.target_modules, str) else list(self.target_modules)
        settings: dict[str, Any] = {"lora_alpha": self.alpha, "lora_dropout": self.dropout}
        with seeded(self.seed):
            inject_adapter_in_model(LoraConfig(r=self.rank, target_modules=targets, **settings), backbone)
        for parameter in backbone.parameters():
            if parameter.requires_grad:  # injected in the backbone's dtype; in bfloat16 most steps of Adam vanish
                parameter.data = parameter.data.float()
        backbone.train()


def load_encoder(*, pretrained: str, dtype: Dtype, training: Training, trust_remote_code: bool) -> TextEncoder:
    """Loads the backbone and the tokenizer of a causal language model or an encoder.

    Args:
        pretrained: hub name, folder or ``embedded:NAME``, as for a policy.
        trust_remote_code: run code that comes with the checkpoint; leave it off.

    Raises:
        ValueError: unknown dtype or embedded name, float16 for a backbone that is trained, a tokenizer with neither a
            padding nor an end token, or files that contain anything but weights, or not all of them.
        OSError: there is no such checkpoint.
    """
    one_of(DTYPES, dtype=dtype)
    source: dict[str, Any] = {
        "pretrained_model_name_or_path": resolve(pretrained),
        "trust_remote_code": trust_remote_code,
    }
    tokenizer = AutoTokenizer.from_pretrained(padding_side="right", truncation_side="left", **source)
    if tokenizer.pad_token is None:
        if tokenizer.eos_token is None:
            raise ValueError(f"load_encoder: the tokenizer of {pretrained} has neither a padding nor an end token")
        tokenizer.pad_token = tokenizer.eos_token
    with only_weights(f"load_encoder: {pretrained}"):
        backbone, info = AutoModel.from_pretrained(dtype=DTYPES[dtype], **source, **REPORTING)
    require_weights(info, f"load_encoder: {pretrained}", unused="pooler.")
    if getattr(backbone, "pooler", None) is not None:
        backbone.pooler = None  # critics pool states themselves, and DDP refuses trained weights without gradients
    training(backbone)
    if dtype == "float16" and any(parameter.requires_grad for parameter in backbone.parameters()):
        raise ValueError("load_encoder: dtype=float16 loses small gradients in training: use bfloat16 or float32")
    return TextEncoder(backbone=backbone, tokenizer=tokenizer, width=backbone.config.hidden_size)

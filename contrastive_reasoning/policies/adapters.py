"""LoRA adapters on a policy, by peft."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

from peft import LoraConfig, PeftModel, get_peft_model
from transformers import PreTrainedModel

from contrastive_reasoning.policies.seeded import seeded


@dataclass(frozen=True, kw_only=True)
class LoRA:
    """Low-rank adapters, W + (alpha / rank)·B A, arXiv:2106.09685. Raises ValueError for a rank below 1."""

    rank: int
    alpha: float
    dropout: float
    target_modules: Sequence[str] | str
    """Names of the linear layers, or ``all-linear``."""

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ValueError(f"lora.rank must be at least 1, got {self.rank}")
        named = [self.target_modules] if isinstance(self.target_modules, str) else self.target_modules
        for name in {"lm_head", "embed_tokens"} & set(named):
            raise ValueError(
                f"lora.target_modules must not name {name}: the vocabulary is projected by its own weights"
            )

    def attach(self, model: PreTrainedModel, *, seed: int) -> PeftModel:
        """The model with trainable adapters, whose initial A is drawn from ``seed``, and frozen weights."""
        targets = self.target_modules if isinstance(self.target_modules, str) else list(self.target_modules)
        config = LoraConfig(
            r=self.rank,
            lora_alpha=self.alpha,  # pyright: ignore[reportArgumentType]
            lora_dropout=self.dropout,
            target_modules=targets,
            task_type="CAUSAL_LM",
        )
        with seeded(seed):
            return get_peft_model(model, config)  # pyright: ignore[reportReturnType]


def merged(model: PreTrainedModel | PeftModel) -> PreTrainedModel:
    """The model with its adapters folded into a copy of the weights; a model without adapters as it is."""
    if not isinstance(model, PeftModel):
        return model
    return copy.deepcopy(model).merge_and_unload()  # pyright: ignore


def unwrapped(model: PreTrainedModel | PeftModel) -> PreTrainedModel:
    """The model itself, its adapters in place where it has any."""
    return model.get_base_model() if isinstance(model, PeftModel) else model  # pyright: ignore[reportReturnType]

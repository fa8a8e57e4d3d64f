"""Planned attention: a pass can define which tokens attend to which, and which keys and values several rows share.

A model that uses ``transformers``' attention interface passes queries, keys and values of every layer to ``attend``
below. Without a plan that is scaled dot-product attention under the usual mask; with one, the plan computes the output.
The model is not patched, and a plan is an argument of one forward pass.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "planned"
NON_STANDARD = ("attn_logit_softcapping", "kv_lora_rank")
"""Keys of a model's configuration that mark non-standard attention."""
DROPPED = ("attention_dropout", "attn_pdrop", "attention_probs_dropout_prob")
"""Names of attention dropout in models."""


@runtime_checkable
class AttentionPlan(Protocol):
    """Replaces attention under a dense mask in one pass."""

    def attend(
        self,
        layer: int,
        query: Float[Tensor, "b H q d"],
        key: Float[Tensor, "b K q d"],
        value: Float[Tensor, "b K q d"],
        *,
        scaling: float,
    ) -> Float[Tensor, "b H q d"]:
        """The attention output of one layer for the tokens of this pass, whose queries and keys are already rotated.

        H is a multiple of K, and head i reads key head i // (H / K). Scores are multiplied by ``scaling``.
        """
        ...


def attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    attention_plan: AttentionPlan | None = None,
    scaling: float | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """``transformers``' attention interface: the output as (b, q, H, d), and no weights."""
    if attention_plan is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **others)  # pyright: ignore
    return _follow(attention_plan, module, query, key, value, scaling), None  # pyright: ignore[reportCallIssue]


@torch.compiler.disable  # a plan is Python that differs from pass to pass: traced, every pass would be compiled anew
def _follow(
    plan: AttentionPlan, module: Any, query: Tensor, key: Tensor, value: Tensor, scaling: float | None
) -> Tensor:
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return plan.attend(module.layer_idx, query, key, value, scaling=scale).transpose(1, 2)


def can_plan(model: PreTrainedModel) -> bool:
    """Whether every layer of the model attends to all earlier tokens, through the interface, without dropout.

    Models with sliding windows, capped scores (``softcap``), keys and values of different width or dropout in
    attention keep their own passes.
    """
    config = model.config
    windowed = ["sliding_attention"] if getattr(config, "sliding_window", None) else ["full_attention"]
    kinds = set(getattr(config, "layer_types", None) or windowed)
    own = any(getattr(config, name, None) for name in (*NON_STANDARD, *DROPPED))
    return config._attn_implementation == NAME and kinds == {"full_attention"} and not own


def plan_attention(model: PreTrainedModel) -> None:
    """Sets the model's attention to ``attend`` if it uses scaled dot-product attention now and can be changed."""
    if model.config._attn_implementation == "sdpa" and model._can_set_attn_implementation():
        model.set_attn_implementation(NAME)


def no_mask(device: torch.device) -> Tensor:
    """The attention mask of a planned pass: because it has four axes, no other is built."""
    return torch.empty(1, 1, 1, 1, device=device)


AttentionInterface.register(NAME, attend)  # pyright: ignore[reportArgumentType]
AttentionMaskInterface.register(NAME, sdpa_mask)

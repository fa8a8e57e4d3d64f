"""Decoder layers of Llama and Qwen2 whose weights a pass casts: fewer operations, and fewer tensors kept for backward.

    h ← h + O · attend(rotate(Q n₁(h)), rotate(K n₁(h)), V n₁(h))        n  root-mean-square norm
    h ← h + D · (silu(G n₂(h)) ∘ U n₂(h))

The values are those of the model's own layers. Q, K, V are cast into one matrix, and so are G, U. Kept for backward are
both h, the product with G and U, and what attention keeps. Backward computes norms and the gated product again, and
casts the weights again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear, silu
from transformers import PreTrainedModel
from transformers.models.llama import LlamaForCausalLM
from transformers.models.qwen2 import Qwen2ForCausalLM

from contrastive_reasoning.policies.attention import AttentionPlan, attend
from contrastive_reasoning.policies.sharding import HOOKS, is_sharded

SHAPES = (LlamaForCausalLM, Qwen2ForCausalLM)
"""Models whose layers have the shape above."""
IDLE_HOOKS = "transformers.utils.output_capturing"
"""The module of hooks that stay once a pass has returned all hidden states. They do nothing in other passes."""


def can_fuse(model: PreTrainedModel, dtype: torch.dtype) -> bool:
    """Whether a pass with products in ``dtype`` may use :class:`FusedLayer`.

    It may if ``dtype`` is in half precision and the layers have plain linear layers with fp32 weights, no gradient
    checkpointing, and no hooks or shards: only a module that is called gathers its weights.
    """
    config: Any = model.config
    if type(model) not in SHAPES or config.hidden_act != "silu" or getattr(config, "mlp_bias", False):
        return False
    layers: Any = model.base_model.layers
    return dtype.itemsize < 4 and all(_is_plain(layer) for layer in layers)


def _is_plain(layer: Any) -> bool:
    attention, mlp = layer.self_attn, layer.mlp
    products = [attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj]
    products += [mlp.gate_proj, mlp.up_proj, mlp.down_proj]
    hooks = [hook for part in layer.modules() for name in HOOKS for hook in getattr(part, name).values()]
    hooked = any(getattr(hook, "__module__", None) != IDLE_HOOKS for hook in hooks)
    hooked |= any("forward" in vars(part) for part in layer.modules())  # replaced, as accelerate's hooks do
    cast = all(type(part) is nn.Linear and part.weight.dtype == torch.float32 for part in products)
    return cast and not hooked and not is_sharded(layer) and not layer.gradient_checkpointing


def require_fusable(model: PreTrainedModel, dtype: torch.dtype) -> None:
    """Raises ValueError for a model that cannot be fused."""
    if not can_fuse(model, dtype):
        raise ValueError(
            "policy.fused=true needs a Llama or Qwen2 with fp32 weights and compute_dtype bfloat16 or float16, without "
            f"adapters and gradient checkpointing, got {type(model).__name__} with compute_dtype {dtype}; "
            "policy.fused=auto uses the model's own layers then"
        )


class FusedLayer(nn.Module):
    """Computes one layer, without a cache. It holds no weights of its own.

    Args:
        layer: of a model that :func:`can_fuse`.
        dtype: of the products.
    """

    def __init__(self, layer: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.layer = layer
        self.dtype = dtype

    def forward(
        self,
        states: Float[Tensor, "b l D"],
        *,
        attention_mask: Tensor | None,
        position_embeddings: tuple[Float[Tensor, "#b l d"], Float[Tensor, "#b l d"]],
        attention_plan: AttentionPlan | None = None,
        **_: Any,
    ) -> Float[Tensor, "b l D"]:
        layer: Any = self.layer
        attention, mlp, h = layer.self_attn, layer.mlp, states.flatten(0, 1)
        with torch.autocast(states.device.type, enabled=False):
            heads = self._normed(h, layer.input_layernorm, attention.q_proj, attention.k_proj, attention.v_proj)
            parts = self._rotated(attention, heads.view(*states.shape[:2], -1, attention.head_dim), position_embeddings)
            settings: dict[str, Any] = {"scaling": attention.scaling, "attention_plan": attention_plan}
            seen, _ = attend(attention, *parts, attention_mask, **settings)  # pyright: ignore[reportCallIssue]
            h = h + _Product.apply(seen.reshape(len(h), -1), *attention.o_proj.parameters())  # pyright: ignore
            pair = self._normed(h, layer.post_attention_layernorm, mlp.gate_proj, mlp.up_proj)
            return (h + _GatedProduct.apply(pair, mlp.down_proj.weight)).view_as(states)  # pyright: ignore

    def _normed(self, h: Tensor, norm: Any, *linears: Any) -> Float[Tensor, "N o"]:
        """The outputs of the linear layers for the normed states, side by side."""
        weights = [part.weight for part in linears]
        biases = [part.bias for part in linears if part.bias is not None]
        return _NormedProduct.apply(h, norm.weight, norm.variance_epsilon, self.dtype, *weights, *biases)  # pyright: ignore

    def _rotated(
        self, attention: Any, heads: Float[Tensor, "b l h d"], rotation: tuple[Tensor, Tensor]
    ) -> list[Float[Tensor, "b _ l d"]]:
        """Queries, keys and values in the dtype of the products."""
        queries, keys = attention.config.num_attention_heads, attention.config.num_key_value_heads
        turned, value = heads.split([queries + keys, keys], dim=2)
        cos, sin = (part[:, :, None] for part in rotation)
        first, second = turned.chunk(2, dim=-1)
        turned = (turned * cos + torch.cat([-second, first], dim=-1) * sin).to(self.dtype)
        return [part.transpose(1, 2) for part in (*turned.split([queries, keys], dim=2), value)]


class _Product(torch.autograd.Function):
    """W x + b in the dtype of x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *parameters: Tensor) -> Tensor:
        ctx.save_for_backward(x, *parameters)
        return linear(x, *_cast(parameters, x.dtype))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, ...]:
        x, *parameters = ctx.saved_tensors
        weight, _ = _cast(parameters, x.dtype)
        return upstream @ weight, *_gradients(upstream, x, parameters)


class _NormedProduct(torch.autograd.Function):
    """W n(h) + b in ``dtype``, with n(h) = g ∘ h / √(mean(h²) + ε) in the dtype of h."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, gain: Tensor, epsilon: float, dtype: torch.dtype, *parameters: Tensor) -> Tensor:
        scale = torch.rsqrt(h.square().mean(-1, keepdim=True) + epsilon)
        ctx.save_for_backward(h, scale, gain, *parameters)
        ctx.dtype = dtype
        return linear((h * scale * gain).to(dtype), *_cast(parameters, dtype))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        h, scale, gain, *parameters = ctx.saved_tensors
        unit = h * scale
        to_parameters = _gradients(upstream, (unit * gain).to(ctx.dtype), parameters)
        weight, _ = _cast(parameters, ctx.dtype)
        to_normed = (upstream @ weight).to(h.dtype)
        to_gain = (to_normed * unit).sum(0)
        to_unit = to_normed.mul_(gain)
        along = (to_unit * unit).mean(-1, keepdim=True)
        return to_unit.sub_(unit.mul_(along)).mul_(scale), to_gain, None, None, *to_parameters


class _GatedProduct(torch.autograd.Function):
    """W (silu(g) ∘ u) for g and u side by side."""

    @staticmethod
    def forward(ctx: Any, pair: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(pair, weight)
        gate, up = pair.chunk(2, dim=-1)
        return linear(silu(gate) * up, weight.to(pair.dtype))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, Tensor]:
        pair, weight = ctx.saved_tensors
        gate, up = pair.chunk(2, dim=-1)
        opened, to_product = silu(gate), upstream @ weight.to(pair.dtype)
        (to_weight,) = _gradients(upstream, opened * up, [weight])
        to_gate = torch.ops.aten.silu_backward(to_product * up, gate)
        return torch.cat([to_gate, to_product.mul_(opened)], dim=-1), to_weight


def _cast(parameters: Sequence[Tensor], dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
    """The weights as one matrix in ``dtype``, and the biases as one vector. No copy is kept for backward."""
    weights, biases = ([part for part in parameters if part.ndim == axes] for axes in (2, 1))
    return _joined(weights, dtype), _joined(biases, dtype) if biases else None


def _joined(parts: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    if len(parts) == 1:
        return parts[0].to(dtype)
    joined = parts[0].new_empty(sum(map(len, parts)), *parts[0].shape[1:], dtype=dtype)
    for place, part in zip(joined.split([len(part) for part in parts]), parts, strict=True):
        place.copy_(part)
    return joined


def _gradients(upstream: Tensor, x: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
    """The gradients of the parameters of a product with ``x``, in their own dtype."""
    weights, biases = ([part for part in parameters if part.ndim == axes] for axes in (2, 1))
    found = [*(upstream.T @ x).split([len(part) for part in weights])]
    found += upstream.sum(0).split([len(part) for part in biases]) if biases else []
    return [gradient.to(part.dtype) for gradient, part in zip(found, parameters, strict=True)]

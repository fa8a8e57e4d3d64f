"""Decode steps. One of a Llama- or Qwen2-shaped policy is computed from the weights of its own modules.

If a step reads one token of each of a few rows, calling modules takes most of the time. Here a layer is four products,
two norms, one rotation and the plan's attention:

    h ← h + O · attend(rotate(Q n₁(h)), rotate(K n₁(h)), V n₁(h))        n  root-mean-square norm
    h ← h + D · (silu(G n₂(h)) ∘ U n₂(h))

Weights are read by reference. Weights that autocast would cast are cast once, with Q, K, V and G, U concatenated: a
copy in the compute dtype that lives as long as the decoder. On a CPU the copy is packed for oneDNN, which otherwise
rearranges a weight at every step. Modules that are more than a linear layer (adapters) are called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from peft import LoraModel, PeftModel
from torch import Tensor, nn
from torch.nn.functional import embedding, linear, rms_norm
from transformers import DynamicCache, GenerationConfig, LogitsProcessor

from contrastive_reasoning.policies.attention import AttentionPlan, no_mask
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy, unwrap
from contrastive_reasoning.policies.fused_layers import SHAPES
from contrastive_reasoning.policies.shape_bucketing import bucketed_linear

DYNAMIC_ROTATIONS = ("dynamic", "longrope")
"""Rotations whose frequencies change when a position exceeds a limit."""
Product = Callable[[Tensor], Tensor]
"""(b, in) → (b, out) in the compute dtype."""


@runtime_checkable
class Step(Protocol):
    """Reads one token of each row."""

    def read(
        self, ids: Int[Tensor, " b"], positions: Int[Tensor, " b"], plan: AttentionPlan
    ) -> tuple[Float[Tensor, "b V"], Float[Tensor, "b D"] | None]:
        """Logits of the token after each of ``ids``, and the last hidden state there if requested."""
        ...


class Decoder:
    """Reads one token of each row. Later changes of the weights may not take effect."""

    def __init__(self, policy: CausalLMPolicy) -> None:
        base: Any = unwrap(policy.model)
        self.embedding = base.model.embed_tokens.weight
        self.rotary = base.model.rotary_emb
        self.layers = [_Layer(policy, layer) for layer in base.model.layers[: base.config.num_hidden_layers]]
        self.norm = base.model.norm
        self.head = _product(policy, [base.get_output_embeddings()])
        self.static: bool = self.rotary.rope_type not in DYNAMIC_ROTATIONS
        """Whether the operations of ``read`` are the same for all values of its arguments."""

    def read(
        self, ids: Int[Tensor, " b"], positions: Int[Tensor, " b"], plan: AttentionPlan
    ) -> tuple[Float[Tensor, "b V"], Float[Tensor, "b D"]]:
        """Logits of the token after each of ``ids``, and the last hidden state there, after the final norm."""
        with torch.autocast(ids.device.type, enabled=False):  # a product casts its input itself
            states = embedding(ids, self.embedding)
            rotation = self._rotation(states, positions)
            for number, layer in enumerate(self.layers):
                states = layer(number, states, rotation, plan)
            states = _normalise(states, self.norm)
            return self.head(states), states

    def _rotation(self, states: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines, and sines with a negated first half: rotate(x) = x·cos + roll(x)·sin."""
        cos, sin = self.rotary(states[:, None], positions[:, None])
        first, second = sin.chunk(2, dim=-1)
        return cos, torch.cat([-first, second], dim=-1)


class _Layer:
    def __init__(self, policy: CausalLMPolicy, layer: Any) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self.width, self.scaling = attention.head_dim, attention.scaling
        self.queries = attention.config.num_attention_heads
        self.keys = attention.config.num_key_value_heads
        self.before, self.between = layer.input_layernorm, layer.post_attention_layernorm
        self.qkv = _product(policy, [attention.q_proj, attention.k_proj, attention.v_proj])
        self.out = _product(policy, [attention.o_proj])
        self.gate_up = _product(policy, [mlp.gate_proj, mlp.up_proj])
        self.activation = mlp.act_fn
        self.down = _product(policy, [mlp.down_proj])

    def __call__(self, number: int, states: Tensor, rotation: tuple[Tensor, Tensor], plan: AttentionPlan) -> Tensor:
        heads = self.qkv(_normalise(states, self.before)).view(len(states), -1, self.width)
        turned, value = heads.split([self.queries + self.keys, self.keys], dim=1)
        query, key = _rotate(turned, *rotation).split([self.queries, self.keys], dim=1)
        seen = plan.attend(number, query[:, :, None], key[:, :, None], value[:, :, None], scaling=self.scaling)
        states = states + self.out(seen.reshape(len(states), -1))
        gate, up = self.gate_up(_normalise(states, self.between)).chunk(2, dim=-1)
        return states + self.down(self.activation(gate) * up)


def decoder_of(policy: CausalLMPolicy) -> Decoder | None:
    """A decoder with the policy's current weights; None if the model has another shape."""
    model = policy.model
    adapted = isinstance(model, PeftModel)
    plain = not adapted or (isinstance(model.base_model, LoraModel) and not model.active_peft_config.is_prompt_learning)
    shaped = type(unwrap(policy.model)) in SHAPES
    return Decoder(policy) if shaped and plain and policy.plans_attention else None


class ModelStep:
    """One decode step through the model's own forward pass, for models that ``Decoder`` does not support."""

    def __init__(self, policy: CausalLMPolicy, *, states: bool) -> None:
        self.policy = policy
        self.states = states

    def read(
        self, ids: Int[Tensor, " b"], positions: Int[Tensor, " b"], plan: AttentionPlan
    ) -> tuple[Float[Tensor, "b V"], Float[Tensor, "b D"] | None]:
        output = self.policy.model(
            input_ids=ids[:, None],
            position_ids=positions[:, None],
            attention_mask=no_mask(ids.device),
            attention_plan=plan,
            use_cache=False,
            logits_to_keep=1,
            output_hidden_states=self.states,
        )
        return output.logits[:, -1], output.hidden_states[-1][:, -1] if self.states else None


def step_of(policy: CausalLMPolicy, *, states: bool) -> Step:
    """The fastest step for a policy that plans attention. It returns states if ``states``, and may do so otherwise."""
    return decoder_of(policy) or ModelStep(policy, states=states)


def cached_pass(
    policy: CausalLMPolicy,
    ids: Int[Tensor, "b Q"],
    mask: Bool[Tensor, "b K"],
    positions: Int[Tensor, "b Q"],
    cache: DynamicCache,
    *,
    states: bool,
) -> tuple[Float[Tensor, "b V"], Float[Tensor, "b D"] | None]:
    """A pass of the model itself over padded rows, whose keys and values are added to those in the cache.

    Returns the logits of the token after the last of ``ids``, and the last hidden state there if requested.
    """
    output = policy.model(
        input_ids=ids,
        attention_mask=mask,
        position_ids=positions,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
        output_hidden_states=states,
    )
    return output.logits[:, -1], output.hidden_states[-1][:, -1] if states else None


def cache_of(policy: CausalLMPolicy) -> DynamicCache:
    """An empty cache for ``cached_pass``, with the states that each layer of the model keeps."""
    return DynamicCache(config=unwrap(policy.model).config)


def select_rows(cache: DynamicCache, rows: Int[Tensor, " c"]) -> None:
    """Replaces the rows of a cache by those at ``rows``, which may repeat."""
    cache.reorder_cache(rows)  # pyright: ignore[reportArgumentType]  # recurrent layers have no batch_select_indices


Choose = Callable[[Float[Tensor, "b V"]], tuple[Int[Tensor, " b"], Bool[Tensor, " b"]]]
"""Chooses the next token of each row by its logits; also returns which rows are then finished."""


def write_rows(policy: CausalLMPolicy, prompt: Int[Tensor, " s"], *, rows: int, limit: int, choose: Choose) -> None:
    """Writes several rows after one prompt by ``transformers``' own ``generate``, with the model's own kind of cache.

    ``choose`` is called until all rows are finished, at most ``limit`` times.
    """
    chosen = _Chosen(choose)
    settings = GenerationConfig(
        do_sample=False, num_beams=1, max_new_tokens=limit, pad_token_id=policy.pad_token_id, use_cache=True
    )
    with without_own_settings(policy.model):
        policy.model.generate(  # pyright: ignore[reportCallIssue]
            input_ids=prompt.expand(rows, -1),
            attention_mask=prompt.new_ones(rows, len(prompt)),
            generation_config=settings,
            logits_processor=[chosen],
            stopping_criteria=[lambda ids, scores, **_: chosen.finished],
        )


class _Chosen(LogitsProcessor):
    """Makes ``choose`` decide, as greedy search takes the only token with a score."""

    def __init__(self, choose: Choose) -> None:
        self.choose = choose

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        tokens, self.finished = self.choose(scores)
        return torch.full_like(scores, float("-inf")).scatter_(1, tokens[:, None], 0.0)


@contextmanager
def without_own_settings(model: nn.Module) -> Iterator[None]:
    """Removes a model's own generation config, which would set open options: penalties, forbidden tokens, cuts."""
    parts: list[Any] = [part for part in model.modules() if hasattr(part, "generation_config")]
    own = [part.generation_config for part in parts]
    for part in parts:
        part.generation_config = GenerationConfig()
    try:
        yield
    finally:
        for part, config in zip(parts, own, strict=True):
            part.generation_config = config


def _product(policy: CausalLMPolicy, modules: Sequence[nn.Module]) -> Product:
    """The concatenated outputs of the modules for one input."""
    if not all(type(module) is nn.Linear for module in modules):
        return _call_modules(policy, modules)
    layers: list[Any] = list(modules)
    dtype = layers[0].weight.dtype if policy.compute_dtype == torch.float32 else policy.compute_dtype
    if any(layer.weight.dtype != dtype for layer in layers):
        return _cast_product(torch.cat([layer.weight for layer in layers]).to(dtype), _biases(layers, dtype))
    pairs = [(layer.weight, layer.bias) for layer in layers]
    if len(pairs) == 1:
        ((weight, bias),) = pairs
        return lambda x: bucketed_linear(x.to(dtype), weight, bias)

    def separate(x: Tensor) -> Tensor:
        x = x.to(dtype)
        return torch.cat([linear(x, weight, bias) for weight, bias in pairs], dim=-1)

    return separate


def _cast_product(weight: Tensor, bias: Tensor | None) -> Product:
    """W x + b in the dtype of W, with a packed copy of W where this machine has products of packed weights."""
    dtype = weight.dtype
    if not (dtype == torch.bfloat16 and weight.device.type == "cpu" and _packs()):
        return lambda x: bucketed_linear(x.to(dtype), weight, bias)
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, None)
    return lambda x: bucketed_linear(x.to(dtype), packed, bias, product=_packed_linear)


@cache
def _packs() -> bool:
    """Whether torch and this CPU have products of packed bfloat16 weights."""
    ops = torch.ops.mkldnn  # not public, so a version of torch may lack them; torch.compile uses the same operations
    needed = ("_is_mkldnn_bf16_supported", "_reorder_linear_weight", "_linear_pointwise")
    return all(hasattr(ops, name) for name in needed) and ops._is_mkldnn_bf16_supported()


def _packed_linear(x: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")


def _call_modules(policy: CausalLMPolicy, modules: Sequence[nn.Module]) -> Product:
    def product(x: Tensor) -> Tensor:
        with policy.autocast():
            return torch.cat([module(x) for module in modules], dim=-1)

    return product


def _biases(layers: Sequence[Any], dtype: torch.dtype) -> Tensor | None:
    if all(layer.bias is None for layer in layers):
        return None
    parts = [layer.weight.new_zeros(len(layer.weight)) if layer.bias is None else layer.bias for layer in layers]
    return torch.cat(parts).to(dtype)


def _normalise(states: Tensor, norm: Any) -> Tensor:
    return rms_norm(states, norm.weight.shape, norm.weight, norm.variance_epsilon)


def _rotate(heads: Float[Tensor, "b H d"], cos: Float[Tensor, "b 1 d"], sin: Float[Tensor, "b 1 d"]) -> Tensor:
    first, second = heads.chunk(2, dim=-1)
    return torch.addcmul(heads * cos, torch.cat([second, first], dim=-1), sin)

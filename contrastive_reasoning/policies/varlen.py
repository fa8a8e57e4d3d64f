"""Attention of a packed pass by two calls of a kernel for segments of any length, without gathers, masks and padding.

    prompts, completions   each causally to itself                                   o, ℓ     ℓ  log-sum-exp of scores
    completions            those of a prompt together, to the whole prompt           o′, ℓ′
    output                 L = log(exp ℓ + exp ℓ′),  O = exp(ℓ − L) o + exp(ℓ′ − L) o′

The completions of a prompt come one after the other, so that they are one segment of queries for the second call. The
gradient of a part is that of an attention with output O and log-sum-exp L: its probabilities are exp(score − L), and
the term Σ dO ∘ O is that of the whole softmax. So each backward call gets O and L, and the results add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from contrastive_reasoning.policies.pass_cost import Lengths


@dataclass(frozen=True, kw_only=True)
class Segments:
    """Segment i of the queries attends to segment i of the keys."""

    queries: Int[Tensor, " borders"]
    """Borders of the segments: 0, the first length, the first two lengths …, all tokens."""
    keys: Int[Tensor, " borders"]
    most_queries: int
    """At least the length of the longest segment."""
    most_keys: int

    @classmethod
    def of(cls, queries: Sequence[int], keys: Sequence[int], device: torch.device) -> Segments:
        """From the lengths of the segments."""
        borders = [
            torch.tensor([*accumulate(lengths, initial=0)], dtype=torch.int32, device=device)
            for lengths in (queries, keys)
        ]
        # with a bound of 1 FlashAttention swaps queries for heads, and its log-sum-exp has another layout
        return cls(queries=borders[0], keys=borders[1], most_queries=max(2, *queries), most_keys=max(keys))


@runtime_checkable
class Kernel(Protocol):
    """Attention within segments. H is a multiple of K, and head i reads key head i // (H / K)."""

    def takes(self, device: torch.device, dtype: torch.dtype) -> bool:
        """Whether it computes with such tensors."""
        ...

    def forward(
        self,
        query: Float[Tensor, "n H d"],
        key: Float[Tensor, "m K d"],
        value: Float[Tensor, "m K d"],
        segments: Segments,
        *,
        causal: bool,
        scale: float,
    ) -> tuple[Float[Tensor, "n H d"], Float[Tensor, "H n"]]:
        """The output, and the log-sum-exp of the scaled scores. With ``causal`` both segments are the same tokens."""
        ...

    def backward(
        self,
        gradient: Float[Tensor, "n H d"],
        query: Float[Tensor, "n H d"],
        key: Float[Tensor, "m K d"],
        value: Float[Tensor, "m K d"],
        output: Float[Tensor, "n H d"],
        total: Float[Tensor, "H n"],
        segments: Segments,
        *,
        causal: bool,
        scale: float,
    ) -> tuple[Float[Tensor, "n H d"], Float[Tensor, "m K d"], Float[Tensor, "m K d"]]:
        """Gradients of query, key and value, for an output and log-sum-exp that may include other keys."""
        ...


class Flash:
    """FlashAttention as it comes with torch: on CUDA, in half precision.

    ``torch.nn.attention.varlen`` is the same kernel, whose backward takes no other output than its own.
    """

    def takes(self, device: torch.device, dtype: torch.dtype) -> bool:
        return device.type == "cuda" and dtype in (torch.bfloat16, torch.float16)

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, segments: Segments, *, causal: bool, scale: float
    ) -> tuple[Tensor, Tensor]:
        sizes = segments.queries, segments.keys, segments.most_queries, segments.most_keys
        output, total, *_ = torch.ops.aten._flash_attention_forward(
            query, key, value, *sizes, 0.0, causal, False, scale=scale
        )
        return output, total

    def backward(
        self,
        gradient: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        output: Tensor,
        total: Tensor,
        segments: Segments,
        *,
        causal: bool,
        scale: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        sizes = segments.queries, segments.keys, segments.most_queries, segments.most_keys
        no_dropout = torch.zeros(2, dtype=torch.uint64, device=query.device), query.new_empty(0)
        return torch.ops.aten._flash_attention_backward(
            gradient, query, key, value, output, total, *sizes, 0.0, causal, *no_dropout, scale=scale
        )


class SharedSegments:
    """The ``AttentionPlan`` of a packed pass: all prompts, then all completions in the order of their prompts."""

    def __init__(self, lengths: Lengths, kernel: Kernel, device: torch.device) -> None:
        """Each prompt must have tokens of completions: a kernel may leave the gradients of other keys unset.

        Raises ValueError if a prompt has none, or if the completions are not in the order of their prompts.
        """
        self.kernel, self.prompt_tokens = kernel, sum(lengths.prompts)
        alone = [*lengths.prompts, *lengths.completions]
        written = [0] * len(lengths.prompts)
        for prompt, tokens in zip(lengths.owner, lengths.completions, strict=True):
            written[prompt] += tokens
        if not all(written) or list(lengths.owner) != sorted(lengths.owner):
            raise ValueError(f"completions of every prompt must come in the order of the prompts, got {lengths}")
        self.own = Segments.of(alone, alone, device)
        self.across = Segments.of(written, lengths.prompts, device)

    def attend(
        self,
        layer: int,
        query: Float[Tensor, "1 H N d"],
        key: Float[Tensor, "1 K N d"],
        value: Float[Tensor, "1 K N d"],
        *,
        scaling: float,
    ) -> Float[Tensor, "1 H N d"]:
        # rotation leaves queries and keys in fp32 under autocast
        tokens = (part[0].transpose(0, 1).to(value.dtype).contiguous() for part in (query, key, value))
        output: Tensor = _Merged.apply(*tokens, self, scaling)  # pyright: ignore[reportAssignmentType]
        return output.transpose(0, 1)[None]


class _Merged(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Float[Tensor, "N H d"],
        key: Float[Tensor, "N K d"],
        value: Float[Tensor, "N K d"],
        plan: SharedSegments,
        scale: float,
    ) -> Float[Tensor, "N H d"]:
        first = plan.prompt_tokens
        output, total = plan.kernel.forward(query, key, value, plan.own, causal=True, scale=scale)
        prompt, seen = plan.kernel.forward(
            query[first:], key[:first], value[:first], plan.across, causal=False, scale=scale
        )
        alone = total[:, first:]
        whole = torch.logaddexp(alone, seen)
        own_share, share = (_by_token((part - whole).exp()) for part in (alone, seen))
        output[first:] = (own_share * output[first:] + share * prompt).to(output.dtype)
        total[:, first:] = whole
        ctx.save_for_backward(query, key, value, output, total)
        ctx.plan, ctx.scale = plan, scale
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Float[Tensor, "N H d"]) -> tuple[Tensor | None, ...]:
        query, key, value, output, total = ctx.saved_tensors
        plan, scale, gradient = ctx.plan, ctx.scale, gradient.contiguous()
        first = plan.prompt_tokens
        to_query, to_key, to_value = plan.kernel.backward(
            gradient, query, key, value, output, total, plan.own, causal=True, scale=scale
        )
        more_query, more_key, more_value = plan.kernel.backward(
            gradient[first:],
            query[first:],
            key[:first],
            value[:first],
            output[first:],
            total[:, first:].contiguous(),
            plan.across,
            causal=False,
            scale=scale,
        )
        to_query[first:] += more_query
        to_key[:first] += more_key
        to_value[:first] += more_value
        return to_query, to_key, to_value, None, None


def _by_token(share: Float[Tensor, "H n"]) -> Float[Tensor, "n H 1"]:
    return share.transpose(0, 1)[..., None]


FLASH = Flash()
"""The kernel of ``policy.attention=varlen``."""


def require_flash(compute_dtype: torch.dtype) -> None:
    """Checks that this machine has the kernel, for this dtype of products.

    Raises ValueError without a CUDA device of compute capability 8.0 (A100) or newer, and for float32.
    """
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() < (8, 0):
        raise ValueError(
            "policy.attention=varlen needs a CUDA device of compute capability 8.0 (A100) or newer, and there is none; "
            "policy.attention=sdpa does not"
        )
    if compute_dtype == torch.float32:
        raise ValueError("policy.attention=varlen needs policy.compute_dtype=bfloat16, got float32")


def check_heads(config: Any, *, plans: bool) -> None:
    """Checks that the kernel can compute a model's attention; ``plans``: its passes follow an ``AttentionPlan``.

    Raises ValueError for a model that does not, or a width of heads that is not a multiple of 8, or above 256.
    """
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if not plans or width % 8 or width > 256:
        raise ValueError(
            "policy.attention=varlen needs a model that attends to all earlier tokens, with heads whose width is a "
            f"multiple of 8 and at most 256; {type(config).__name__} has a width of {width}"
            f"{'' if plans else ' and other attention'}"
        )

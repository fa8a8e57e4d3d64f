"""Attention of a packed pass: completions look at the keys of the prompt they share, and back at themselves.

            keys of the prompt      own keys
    query 0   1 1 1 1 1 ·            1 · ·          · : padding of a shorter prompt, or what lies ahead
    query 1   1 1 1 1 1 ·            1 1 ·
    query 2   1 1 1 1 1 ·            1 1 1

The keys and values of a prompt are computed once. Their gradients are the sums over its completions, since every
completion gathers them from the one place where they stand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import embedding, scaled_dot_product_attention


@dataclass(frozen=True, kw_only=True)
class Block:
    """Rows of similar length, attended to at once."""

    queries: Int[Tensor, "r q"]
    """The places of their queries among the N tokens of the pass; padding repeats the last one."""
    keys: Int[Tensor, "r k"]
    """The places of their keys and values, likewise."""
    mask: Float[Tensor, "#r 1 q k"] | None
    """What is added to the scores, 0 or −∞; None: each query looks at the keys up to its own place."""

    def attend(
        self, query: Float[Tensor, "N H d"], key: Float[Tensor, "N K d"], value: Float[Tensor, "N K d"], scaling: float
    ) -> Float[Tensor, "slot Hd"]:
        """The output in each slot of ``queries``, row by row."""
        heads = query.shape[1]
        rows = _gathered(query, self.queries), *(_for_heads(_gathered(p, self.keys), heads) for p in (key, value))
        mask = None if self.mask is None else self.mask.to(query.dtype)
        output = scaled_dot_product_attention(*rows, attn_mask=mask, is_causal=mask is None, scale=scaling)
        return output.transpose(1, 2).reshape(self.queries.numel(), -1)


@dataclass(frozen=True, kw_only=True)
class SharedPrompts:
    """The ``AttentionPlan`` of one packed pass. It holds places only: two passes through it do the same."""

    blocks: Sequence[Block]
    """Every token is a query of exactly one of them."""
    slots: Int[Tensor, " N"]
    """Where each token's output stands among the slots of all blocks, end to end."""

    def attend(
        self,
        layer: int,
        query: Float[Tensor, "1 H N d"],
        key: Float[Tensor, "1 K N d"],
        value: Float[Tensor, "1 K N d"],
        *,
        scaling: float,
    ) -> Float[Tensor, "1 H N d"]:
        """Attention within each block, and the outputs back in the order of the tokens."""
        # rotation leaves queries and keys in fp32 under autocast: they are cast before they are copied
        tokens = [part[0].transpose(0, 1).to(value.dtype) for part in (query, key, value)]
        output = torch.cat([block.attend(*tokens, scaling) for block in self.blocks])
        return embedding(self.slots, output).view(tokens[0].shape).transpose(0, 1)[None]


def causal_block(starts: Int[Tensor, " r"], lengths: Int[Tensor, " r"]) -> Block:
    """Rows that begin at ``starts`` among the tokens and look back at themselves only.

    Padding comes after the tokens, so no mask is needed to keep them from looking at it.
    """
    places = _places(starts, lengths)
    return Block(queries=places, keys=places, mask=None)


def continuing_block(
    starts: Int[Tensor, " r"],
    lengths: Int[Tensor, " r"],
    prompt_starts: Int[Tensor, " r"],
    prompt_lengths: Int[Tensor, " r"],
    dtype: torch.dtype,
) -> Block:
    """Completions that also look at all of a prompt's tokens; the mask is of ``dtype``."""
    own, prompts = _places(starts, lengths), _places(prompt_starts, prompt_lengths)
    allowed = _allowed(prompt_lengths, prompts.shape[1], own.shape[1])
    mask = torch.zeros(allowed.shape, dtype=dtype, device=own.device).masked_fill_(~allowed, float("-inf"))
    return Block(queries=own, keys=torch.cat([prompts, own], dim=1), mask=mask)


def _allowed(prompt_lengths: Int[Tensor, " r"], width: int, queries: int) -> Bool[Tensor, "#r 1 q k"]:
    """The picture above; one for all rows where their prompts are equally long."""
    if bool((prompt_lengths == width).all()):
        prompt_lengths = prompt_lengths[:1]
    steps = torch.arange(max(width, queries), device=prompt_lengths.device)
    prompt = (steps[:width] < prompt_lengths[:, None])[:, None].expand(-1, queries, -1)
    own = (steps[:queries] <= steps[:queries, None])[None].expand(len(prompt_lengths), -1, -1)
    return torch.cat([prompt, own], dim=2)[:, None]


def _places(starts: Int[Tensor, " r"], lengths: Int[Tensor, " r"]) -> Int[Tensor, "r w"]:
    steps = torch.arange(int(lengths.max()), device=starts.device)
    return starts[:, None] + torch.minimum(steps, lengths[:, None] - 1)


def _gathered(tokens: Float[Tensor, "N K d"], places: Int[Tensor, "r w"]) -> Float[Tensor, "r K w d"]:
    # a row look-up as of embeddings: its backward adds up fast in every dtype, index_select's does not in bf16
    found = embedding(places.flatten(), tokens.flatten(1))
    return found.view(*places.shape, *tokens.shape[1:]).transpose(1, 2)


def _for_heads(keys: Float[Tensor, "r K w d"], heads: int) -> Float[Tensor, "r H w d"]:
    """Grouped queries: head i reads key head i // (H / K)."""
    return keys if keys.shape[1] == heads else keys.repeat_interleave(heads // keys.shape[1], dim=1)

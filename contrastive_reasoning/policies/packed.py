"""A pass without padding: the tokens of several rollouts in one row, each prompt once, positions restarted.

    tokens      prompt 0 · · ·  prompt 1 · ·  completion 0 · ·  completion 1 · · ·  …        (1, N)
    positions   0 1 2 3         0 1 2         4 5 6             4 5 6 7               both continue prompt 0

All operations except attention treat tokens one by one, and attention follows the plan. Spare tokens
(``shape_bucketing``) come before the others, and each attends to itself alone. A completion attends to the keys of the
prompt that it shares, and causally to its own:

            keys of the prompt      own keys
    query 0   1 1 1 1 1 ·            1 · ·          · : padding of a shorter prompt, or a later token
    query 1   1 1 1 1 1 ·            1 1 ·
    query 2   1 1 1 1 1 ·            1 1 1

The keys and values of a prompt are computed once. Their gradients are the sums over its completions, since every
completion gathers them from one place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import embedding, scaled_dot_product_attention

from contrastive_reasoning.policies.attention import AttentionPlan
from contrastive_reasoning.policies.pass_cost import Lengths, completion_blocks, prompt_blocks
from contrastive_reasoning.policies.shape_bucketing import spare_rows
from contrastive_reasoning.policies.short_attention import SHORT, short_attention
from contrastive_reasoning.policies.varlen import Kernel, SharedSegments


@dataclass(frozen=True, kw_only=True)
class Packed:
    """The inputs of a packed pass, and the places of the completions in it."""

    ids: Int[Tensor, "1 N"]
    positions: Int[Tensor, "1 N"]
    plan: AttentionPlan
    predicting: Int[Tensor, " n"]
    """For each completion token, row by row, the index of the token before it. The n tokens come last in ``ids``."""


def pack(
    prompt_ids: Int[Tensor, "p s"],
    prompt_mask: Bool[Tensor, "p s"],
    completion_ids: Int[Tensor, "b t"],
    mask: Bool[Tensor, "b t"],
    owner: Int[Tensor, " b"],
    lengths: Lengths,
    *,
    dtype: torch.dtype,
    kernel: Kernel | None = None,
) -> Packed:
    """Packs the rows of a pass.

    Prompts have at least one token and are padded on either side. Completions are padded on the right and may be empty.
    ``lengths`` are the same lengths as numbers; ``dtype`` is that of the products. A ``kernel`` is used if it takes
    such tensors, each prompt has tokens of completions, and its completions are neighbours.
    """
    device = mask.device
    order = None if kernel is None or not kernel.takes(device, dtype) else _order_of_prompts(lengths)
    if order is not None:
        places = {prompt: place for place, prompt in enumerate(order)}
        owners, prompts = [places[prompt] for prompt in lengths.owner], [lengths.prompts[prompt] for prompt in order]
        lengths = replace(lengths, prompts=prompts, owner=owners)
        owner = torch.tensor(owners, device=device)
        prompt_ids, prompt_mask = prompt_ids[order], prompt_mask[order]
    sizes, own_sizes = prompt_mask.sum(dim=1), mask.sum(dim=1)
    added = 0 if order is not None else spare_rows(lengths.packed, device, dtype)  # a kernel of segments takes none
    spare = torch.zeros(added, dtype=torch.long, device=device)
    starts = len(spare) + _starts(sizes)
    own_starts = len(spare) + int(sizes.sum()) + _starts(own_sizes)
    own_positions = sizes[owner][:, None] + mask.cumsum(dim=1) - 1
    plan: AttentionPlan
    if kernel is not None and order is not None:
        plan = SharedSegments(lengths, kernel, device)
    else:
        blocks = [
            causal_block(starts[rows], sizes[rows])
            for rows in (torch.tensor(block, device=device) for block in prompt_blocks(lengths))
        ] + [
            continuing_block(own_starts[rows], own_sizes[rows], starts[owner[rows]], sizes[owner[rows]], dtype)
            for rows in (torch.tensor(block, device=device) for block in completion_blocks(lengths))
        ]
        if len(spare):
            blocks.append(causal_block(torch.arange(len(spare), device=device), torch.ones_like(spare)))
        plan = SharedPrompts(blocks)
    return Packed(
        ids=torch.cat([spare, prompt_ids[prompt_mask], completion_ids[mask]])[None],
        positions=torch.cat([spare, prompt_mask.cumsum(dim=1)[prompt_mask] - 1, own_positions[mask]])[None],
        plan=plan,
        predicting=_before(starts + sizes - 1, own_starts, mask, owner),
    )


def _order_of_prompts(lengths: Lengths) -> list[int] | None:
    """The prompts in the order of their completions; None if those of a prompt are not neighbours, or it has none."""
    met = [owner for place, owner in enumerate(lengths.owner) if not place or owner != lengths.owner[place - 1]]
    continued = {owner for owner, tokens in zip(lengths.owner, lengths.completions, strict=True) if tokens}
    return met if len(met) == len(continued) == len(lengths.prompts) else None


def _starts(sizes: Int[Tensor, " r"]) -> Int[Tensor, " r"]:
    return sizes.cumsum(dim=0) - sizes


def _before(
    last: Int[Tensor, " p"], starts: Int[Tensor, " b"], mask: Bool[Tensor, "b t"], owner: Int[Tensor, " b"]
) -> Int[Tensor, " n"]:
    """The index of the token before each completion token; before the first, it is its prompt's last token."""
    steps = torch.arange(mask.shape[1], device=mask.device)
    own = starts[:, None] + steps - 1
    return torch.where(steps == 0, last[owner][:, None], own)[mask]


@dataclass(frozen=True, kw_only=True)
class Block:
    """Rows of similar length, attended to at once."""

    queries: Int[Tensor, "r q"]
    """Indices of their queries among the N tokens of the pass; padding repeats the last one."""
    keys: Int[Tensor, "r k"]
    """Indices of their keys and values, likewise."""
    mask: Float[Tensor, "#r 1 q k"] | None
    """Added to the scores, 0 or −∞; None: each query attends to the keys up to its own place."""

    def attend(
        self, query: Float[Tensor, "rq H d"], key: Float[Tensor, "rk K d"], value: Float[Tensor, "rk K d"], scale: float
    ) -> Float[Tensor, "rq H d"]:
        """The output for each query, row by row."""
        half_on_cpu = query.device.type == "cpu" and query.dtype.itemsize == 2
        if half_on_cpu and self.queries.shape[1] <= SHORT:
            return self._attend_by_products(query, key, value, scale)
        if half_on_cpu and self.mask is None:  # other blocks are copied, and a view would keep all of them for backward
            query, key, value = query.clone(), key.clone(), value.clone()
        shares = query.shape[1] // key.shape[1]
        q, k, v = _rows(query, self.queries, 1), _rows(key, self.keys, shares), _rows(value, self.keys, shares)
        if self.mask is None:
            output = scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
        else:
            # on a CPU the masked kernel in half precision takes about twice as long as in fp32, forward and backward
            dtype = torch.promote_types(query.dtype, torch.float32) if query.device.type == "cpu" else query.dtype
            mask = self.mask.to(dtype)
            with torch.autocast(query.device.type, enabled=False):
                output = scaled_dot_product_attention(
                    q.to(dtype), k.to(dtype), v.to(dtype), attn_mask=mask, scale=scale
                )
        return output.to(query.dtype).transpose(1, 2).reshape(query.shape)

    def _attend_by_products(self, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        rows, width = self.queries.shape
        q = query.view(rows, width, key.shape[1], -1, query.shape[2]).permute(0, 2, 3, 1, 4)
        output = short_attention(q, _rows(key, self.keys, 1), _rows(value, self.keys, 1), self._short_mask, scale)
        return output.permute(0, 3, 1, 2, 4).reshape(query.shape)

    @cached_property
    def _short_mask(self) -> Float[Tensor, "#r 1 1 q k"]:
        """The mask in fp32, also of a causal block."""
        if self.mask is not None:
            return self.mask.float()[:, None]
        allowed = _attention_mask(self.queries.new_zeros(1), 0, self.queries.shape[1])
        return _bias(allowed, torch.float32)[:, None]


class SharedPrompts:
    """The ``AttentionPlan`` of one packed pass. It holds indices only, so that it can be used for two passes.

    Args:
        blocks: every token is a query of one of them.
    """

    def __init__(self, blocks: Sequence[Block]) -> None:
        self.blocks = blocks
        self.queries, self.keys = _Laid([block.queries for block in blocks]), _Laid([block.keys for block in blocks])
        self.slots = _slots([block.queries for block in blocks])

    def attend(
        self,
        layer: int,
        query: Float[Tensor, "1 H N d"],
        key: Float[Tensor, "1 K N d"],
        value: Float[Tensor, "1 K N d"],
        *,
        scaling: float,
    ) -> Float[Tensor, "1 H N d"]:
        """Attends within each block; returns the outputs in the order of the tokens."""
        # rotation leaves queries and keys in fp32 under autocast: they are cast before they are copied
        q, k, v = (part[0].transpose(0, 1).to(value.dtype) for part in (query, key, value))
        parts = zip(self.blocks, self.queries(q), self.keys(k), self.keys(v), strict=True)
        outputs = [block.attend(*tokens, scaling) for block, *tokens in parts]  # pyright: ignore
        output = torch.cat(outputs) if len(outputs) > 1 else outputs[0]
        output = output if self.slots is None else _look_up(output, self.slots)
        return output.transpose(0, 1)[None]


class _Laid:
    """Lays out tokens as the rows of several blocks, end to end, by one look-up."""

    def __init__(self, places: Sequence[Int[Tensor, "_ _"]]) -> None:
        whole = torch.cat([part.flatten() for part in places])
        self.sizes = [part.numel() for part in places]
        self.places = None if _in_order(whole) else whole

    def __call__(self, tokens: Float[Tensor, "N K d"]) -> Sequence[Float[Tensor, "_ K d"]]:
        found = tokens if self.places is None else _look_up(tokens, self.places)
        return found.split(self.sizes)


def _slots(queries: Sequence[Int[Tensor, "_ _"]]) -> Int[Tensor, " N"] | None:
    """The index of each token's output in the concatenated blocks; None: in the order of the tokens.

    If there are several, it is the first: padding repeats the one before it.
    """
    places = torch.cat([part.flatten() for part in queries])
    fresh = torch.cat([torch.diff(part, prepend=part[:, :1] - 1).flatten() for part in queries]) != 0
    slots = torch.empty(int(fresh.sum()), dtype=torch.long, device=places.device)
    slots[places[fresh]] = fresh.nonzero()[:, 0]
    return None if len(slots) == len(places) and _in_order(slots) else slots


def _in_order(places: Int[Tensor, " n"]) -> bool:
    return torch.equal(places, torch.arange(len(places), device=places.device))


def _look_up(tokens: Float[Tensor, "N K d"], places: Int[Tensor, " n"]) -> Float[Tensor, "n K d"]:
    # an embedding look-up: its backward is fast in every dtype, that of index_select is slow in bf16
    return embedding(places, tokens.flatten(1)).view(-1, *tokens.shape[1:])


def _rows(tokens: Float[Tensor, "rw K d"], like: Int[Tensor, "r w"], shares: int) -> Float[Tensor, "r H w d"]:
    """Splits tokens into rows. With grouped queries, head i reads key head i // shares."""
    rows = tokens.view(*like.shape, *tokens.shape[1:]).transpose(1, 2)
    return rows if shares == 1 else rows.repeat_interleave(shares, dim=1)


def causal_block(starts: Int[Tensor, " r"], lengths: Int[Tensor, " r"]) -> Block:
    """Rows that begin at ``starts`` among the tokens and attend causally to themselves only.

    Padding comes after the tokens, so causal attention needs no further mask.
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
    """Completions that also attend to all tokens of their prompt; the mask has dtype ``dtype``."""
    own, prompts = _places(starts, lengths), _places(prompt_starts, prompt_lengths)
    allowed = _attention_mask(prompt_lengths, prompts.shape[1], own.shape[1])
    return Block(queries=own, keys=torch.cat([prompts, own], dim=1), mask=_bias(allowed, dtype))


def _bias(allowed: Bool[Tensor, "*shape"], dtype: torch.dtype) -> Float[Tensor, "*shape"]:
    return torch.zeros(allowed.shape, dtype=dtype, device=allowed.device).masked_fill_(~allowed, float("-inf"))


def _attention_mask(prompt_lengths: Int[Tensor, " r"], width: int, queries: int) -> Bool[Tensor, "#r 1 q k"]:
    """The mask pictured above; one for all rows if their prompts are equally long."""
    if bool((prompt_lengths == width).all()):
        prompt_lengths = prompt_lengths[:1]
    steps = torch.arange(max(width, queries), device=prompt_lengths.device)
    prompt = (steps[:width] < prompt_lengths[:, None])[:, None].expand(-1, queries, -1)
    own = (steps[:queries] <= steps[:queries, None])[None].expand(len(prompt_lengths), -1, -1)
    return torch.cat([prompt, own], dim=2)[:, None]


def _places(starts: Int[Tensor, " r"], lengths: Int[Tensor, " r"]) -> Int[Tensor, "r w"]:
    steps = torch.arange(int(lengths.max()), device=starts.device)
    return starts[:, None] + torch.minimum(steps, lengths[:, None] - 1)

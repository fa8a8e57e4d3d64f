"""Key-value cache of a running decode: one copy of each prompt, read by all of its rows, and each row's own tokens.

                      prompt p                       own
    row of p   q ·  [ k₁ … k_S | sink ]    and   q · [ k₁ … k_t ]

Attention over both is one softmax. The own part is attended to first. Its log-sum-exp is then the score of the sink, a
further key of the prompt with value zero, so that the softmax over the prompt gives the weight of the own part. The
rows of a prompt are grouped for this: one product with its keys instead of one for each row.

Prompts are read beforehand, several as one row of tokens without padding, each attending to itself alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import psutil
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from contrastive_reasoning.policies.attention import no_mask
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.shape_bucketing import spare_rows

TOKENS_AT_ONCE = 4096
"""Maximum tokens of one pass, with at least one prompt: the memory besides keys and values grows with them."""


def tokens_in_free_memory(policy: CausalLMPolicy, *, ranks: int) -> int:
    """The number of tokens whose keys and values take a quarter of the free memory of the policy's device, at least 1.

    The cache is copied while rows join it, so it needs up to half of the memory. On a CPU the ``ranks`` share it.

    Raises ValueError if the model's configuration lacks the sizes of keys and values.
    """
    config, device = policy.model.config, policy.device
    heads, width = getattr(config, "num_key_value_heads", None), getattr(config, "head_dim", None)
    if heads is None:
        raise ValueError(f"max_batch_tokens=auto: {type(config).__name__} has no num_key_value_heads; set a number")
    values = 2 * config.num_hidden_layers * heads * (width or config.hidden_size // config.num_attention_heads)
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # torch's own, to be used again
        free, each = torch.cuda.mem_get_info(device)[0] + kept, policy.compute_dtype.itemsize
    else:
        free, each = psutil.virtual_memory().available // ranks, torch.float32.itemsize
    return max(free // 4 // (values * each), 1)


class ReadPrompt(NamedTuple):
    """The results of reading a prompt."""

    keys_values: Float[Tensor, "L 2 K s d"]
    logits: Float[Tensor, " V"]
    """Logits of the token after its last one."""


class PackedPrompts:
    """The attention plan of such a pass: tokens ``borders[i]`` … ``borders[i+1]`` − 1 are prompt i.

    Spare tokens (``shape_bucketing``) come after them and attend to nothing.
    """

    def __init__(self, lengths: Sequence[int]) -> None:
        self.borders = list(pairwise(accumulate(lengths, initial=0)))
        self.keys_values: list[Float[Tensor, "2 K N d"]] = []

    def attend(
        self,
        layer: int,
        query: Float[Tensor, "1 H N d"],
        key: Float[Tensor, "1 K N d"],
        value: Float[Tensor, "1 K N d"],
        *,
        scaling: float,
    ) -> Float[Tensor, "1 H N d"]:
        # rotation leaves keys in fp32 under autocast; on a CPU the cache is fp32 anyway
        dtype = key.dtype if key.device.type == "cpu" else value.dtype
        self.keys_values.append(torch.cat([key.to(dtype), value.to(dtype)]))
        grouped = query.shape[1] != key.shape[1]
        seen = [
            scaled_dot_product_attention(
                query[:, :, start:end],
                key[:, :, start:end],
                value[:, :, start:end],
                is_causal=True,
                scale=scaling,
                enable_gqa=grouped,
            )
            for start, end in self.borders
        ]
        spare = query[:, :, self.borders[-1][1] :]
        return torch.cat([*seen, torch.zeros_like(spare)] if spare.numel() else seen, dim=2)


def read_prompts(policy: CausalLMPolicy, prompts: Sequence[Int[Tensor, " _"]]) -> list[ReadPrompt]:
    """Keys, values and last logits of each prompt, in order."""
    return [read for run in _runs(prompts) for read in _read(policy, run)]


def _read(policy: CausalLMPolicy, prompts: Sequence[Tensor]) -> list[ReadPrompt]:
    plan = PackedPrompts([len(prompt) for prompt in prompts])
    device = prompts[0].device
    positions = torch.cat([torch.arange(len(prompt), device=device) for prompt in prompts])
    spare = positions.new_zeros(spare_rows(len(positions), device, policy.compute_dtype))
    with policy.autocast(cached=False):  # else a second copy of all matrices stays until all is drawn
        output = policy.model(
            input_ids=torch.cat([*prompts, spare])[None],
            position_ids=torch.cat([positions, spare])[None],
            attention_mask=no_mask(device),
            attention_plan=plan,
            use_cache=False,
            logits_to_keep=torch.tensor([end - 1 for _, end in plan.borders], device=device),
        )
    layers = torch.stack(plan.keys_values)
    return [
        ReadPrompt(layers[..., start:end, :], logits)
        for (start, end), logits in zip(plan.borders, output.logits[0], strict=True)
    ]


def _runs(prompts: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    run: list[Tensor] = []
    for prompt in prompts:
        if run and sum(map(len, run)) + len(prompt) > TOKENS_AT_ONCE:
            yield run
            run = []
        run.append(prompt)
    if run:
        yield run


class SharedCache:
    """The attention plan of a decode step. Rows are numbered 0 … b−1; the caller tracks which row is which.

    Products of many small matrices are slow in half precision on a CPU, so the cache is fp32 there. While rows or
    prompts are added or removed, the old and the new block exist together for a moment.
    """

    def __init__(self, *, limit: int) -> None:
        self.limit = limit
        self.prompts: list[int] = []
        """The held prompts, by number."""
        self.lengths: list[int] = []
        """Number of tokens of each of them."""
        self.owner: list[int] = []
        """The number of each row's prompt."""
        self.filled: list[int] = []
        """Number of own tokens of each row."""
        self.shared: Float[Tensor, "L 2 P K S d"] | None = None
        self.own: Float[Tensor, "L 2 b K T d"] | None = None

    @property
    def reserved(self) -> int:
        """Tokens of the allocated keys and values, without the sinks."""
        if self.shared is None or self.own is None:
            return 0
        return len(self.prompts) * (self.shared.shape[4] - 1) + self.own.shape[2] * self.limit

    def hold(self, keep: Sequence[int], new: Mapping[int, ReadPrompt]) -> None:
        """Keeps the prompts of these numbers and adds new ones; the rows of all others must have left."""
        places = [self.prompts.index(prompt) for prompt in keep]
        lengths = [self.lengths[i] for i in places] + [read.keys_values.shape[3] for read in new.values()]
        parts = [] if self.shared is None else [self.shared[:, :, i, :, : self.lengths[i]] for i in places]
        parts += [read.keys_values for read in new.values()]
        self.shared = _block(parts, max(lengths) + 1)
        self.prompts, self.lengths = [*keep, *new], lengths

    def join(self, owners: Sequence[int]) -> None:
        """Adds rows without own tokens, each of a prompt that is held."""
        assert self.shared is not None
        rows = len(self.owner) + len(owners)
        if self.own is None or self.own.shape[2] != rows:
            layers, two, _, heads, _, width = self.shared.shape
            grown = self.shared.new_zeros(layers, two, rows, heads, self.limit, width)
            if self.owner and self.own is not None:
                longest = max(self.filled)
                grown[:, :, : len(self.owner), :, :longest] = self.own[:, :, : len(self.owner), :, :longest]
            self.own = grown
        self.owner += owners
        self.filled += [0] * len(owners)

    def leave(self, rows: Sequence[int]) -> list[int]:
        """Removes rows; the last rows take their places. Returns for each remaining row its previous number."""
        assert self.own is not None
        gone, left = set(rows), len(self.owner) - len(rows)
        order = list(range(left))
        movers = [row for row in range(left, len(self.owner)) if row not in gone]
        holes = [row for row in sorted(gone) if row < left]
        if holes:
            longest = max(self.filled[row] for row in movers)
            self.own[:, :, holes, :, :longest] = self.own[:, :, movers, :, :longest]
        for hole, mover in zip(holes, movers, strict=True):
            order[hole] = mover
        self.owner, self.filled = [self.owner[i] for i in order], [self.filled[i] for i in order]
        return order

    def lay_out(self) -> None:
        """Determines which rows share a prompt; call it after rows joined or left."""
        assert self.shared is not None
        device = self.shared.device
        places = {prompt: place for place, prompt in enumerate(self.prompts)}
        self.layout = PromptLayout([places[prompt] for prompt in self.owner], len(self.prompts), device)
        sink = self.shared.shape[4] - 1
        self.prompt_bias = _hiding(self.lengths, sink, device)
        if self.prompt_bias is not None:
            self.prompt_bias = pad(self.prompt_bias, (0, 1))

    def advance(self) -> None:
        """Extends each row by its next token; call it before each step."""
        assert self.own is not None
        device = self.own.device
        self.filled = [n + 1 for n in self.filled]
        self.longest = max(self.filled)
        self.own_bias = _hiding(self.filled, self.longest, device)
        self.at = torch.arange(len(self.filled), device=device), torch.tensor(self.filled, device=device) - 1

    def advance_to(self, filled: Int[Tensor, " b"], longest: int) -> None:
        """As ``advance``, to numbers of own tokens that the device alone knows, none above ``longest``."""
        self.longest = longest
        self.own_bias = _bias_beyond(filled, longest)
        self.at = torch.arange(len(filled), device=filled.device), filled - 1

    def attend(
        self,
        layer: int,
        query: Float[Tensor, "b H 1 d"],
        key: Float[Tensor, "b K 1 d"],
        value: Float[Tensor, "b K 1 d"],
        *,
        scaling: float,
    ) -> Float[Tensor, "b H 1 d"]:
        assert self.shared is not None
        with torch.autocast(query.device.type, enabled=False):
            keys, values = self._write(layer, key, value)
            grouped = (query * scaling).to(keys.dtype).reshape(len(query), key.shape[1], -1, query.shape[-1])
            own, own_weight = _attend(grouped, keys, values, self.own_bias)
            seen = self._with_prompt(layer, grouped, own, own_weight)
        return seen.reshape(query.shape).to(query.dtype)

    def _write(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Stores the token's key and value; returns the keys and values of each row so far."""
        assert self.own is not None
        for block, new in zip(self.own[layer], (key, value), strict=True):
            if self.own_bias is None:  # all rows are at the same token
                block[: len(new), :, self.longest - 1] = new[:, :, 0]
            else:
                rows, tokens = self.at
                block[rows, :, tokens] = new[:, :, 0].to(block.dtype)
        keys, values = self.own[layer, :, : len(key), :, : self.longest]
        return keys, values

    def _with_prompt(
        self, layer: int, query: Float[Tensor, "b K r d"], own: Float[Tensor, "b K r d"], own_weight: Tensor
    ) -> Float[Tensor, "b K r d"]:
        assert self.shared is not None
        keys, values = self.shared[layer]
        scores = torch.matmul(self.layout.gather(query), keys.transpose(2, 3)).float()
        if self.prompt_bias is not None:
            scores += self.prompt_bias
        scores[..., -1:] = self.layout.gather(own_weight)
        weights = scores.softmax(-1)
        prompt = self.layout.scatter(torch.matmul(weights.to(values.dtype), values))
        return torch.addcmul(prompt, self.layout.scatter(weights[..., -1:]).to(own.dtype), own)


def _attend(
    query: Float[Tensor, "b K r d"],
    keys: Float[Tensor, "b K t d"],
    values: Float[Tensor, "b K t d"],
    bias: Float[Tensor, "b 1 1 t"] | None,
) -> tuple[Float[Tensor, "b K r d"], Float[Tensor, "b K r 1"]]:
    """Attention to each row's own tokens, and the log-sum-exp of its scores."""
    scores = torch.matmul(query, keys.transpose(2, 3)).float()
    if bias is not None:
        scores += bias
    weights = scores.softmax(-1)
    # The largest weight is exp(largest score − log-sum-exp): two maxima cost less than a log-sum-exp.
    total = scores.amax(-1, keepdim=True) - weights.amax(-1, keepdim=True).log()
    return torch.matmul(weights.to(values.dtype), values), total


def _hiding(lengths: Sequence[int], width: int, device: torch.device) -> Float[Tensor, "n 1 1 width"] | None:
    """A bias on scores that hides entries beyond each length; None if there are none."""
    return None if min(lengths) == width else _bias_beyond(torch.tensor(lengths, device=device), width)


def _bias_beyond(lengths: Int[Tensor, " n"], width: int) -> Float[Tensor, "n 1 1 width"]:
    beyond = torch.arange(width, device=lengths.device) >= lengths[:, None]
    return torch.zeros(beyond.shape, device=lengths.device).masked_fill_(beyond, float("-inf"))[:, None, None]


def _block(parts: Sequence[Float[Tensor, "L 2 K _ d"]], width: int) -> Float[Tensor, "L 2 P K width d"]:
    """The parts side by side, padded with zeros."""
    layers, two, heads, _, size = parts[0].shape
    dtype = torch.float32 if parts[0].device.type == "cpu" else parts[0].dtype
    block = torch.zeros(layers, two, len(parts), heads, width, size, dtype=dtype, device=parts[0].device)
    for place, part in enumerate(parts):
        block[:, :, place, :, : part.shape[3]] = part
    return block


class PromptLayout:
    """Rows laid out by prompt, and back: P tables of G places. An empty place holds row 0, and its result is not read.

    rows of prompts  0 1 0 2 0      tables   0: rows 0 2 4     1: row 1 · ·     2: row 3 · ·
    """

    def __init__(self, owner: Sequence[int], prompts: int, device: torch.device) -> None:
        taken, places = [0] * prompts, []
        for prompt in owner:
            places.append((prompt, taken[prompt]))
            taken[prompt] += 1
        self.prompts, self.size = prompts, max(taken)
        flat = [prompt * self.size + place for prompt, place in places]
        at = [0] * (prompts * self.size)
        for row, place in enumerate(flat):
            at[place] = row
        in_order = flat == list(range(prompts * self.size))
        self.place_of_row = None if in_order else torch.tensor(flat, device=device)
        self.row_at_place = None if in_order else torch.tensor(at, device=device)

    def gather(self, rows: Float[Tensor, "b K r e"]) -> Float[Tensor, "P K Gr e"]:
        """The r queries of each row's key heads, those of one prompt in one matrix per key head."""
        if self.row_at_place is not None:
            rows = rows.index_select(0, self.row_at_place)
        laid_out = rows.unflatten(0, (self.prompts, self.size)).transpose(1, 2)
        return laid_out.flatten(2, 3)

    def scatter(self, laid_out: Float[Tensor, "P K Gr e"]) -> Float[Tensor, "b K r e"]:
        """The inverse of ``gather``: from tables back to rows."""
        rows = laid_out.unflatten(2, (self.size, -1)).transpose(1, 2).flatten(0, 1)
        return rows if self.place_of_row is None else rows.index_select(0, self.place_of_row)

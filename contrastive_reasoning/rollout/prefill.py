"""Prompts read once each, as one row of tokens without padding, each seeing itself alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from contrastive_reasoning.policies.attention import no_mask
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.shape_bucketing import spare_rows

TOKENS_AT_ONCE = 4096
"""Tokens of one pass at most, one prompt at least: what a pass holds besides keys and values grows with them."""


class ReadPrompt(NamedTuple):
    """What reading a prompt leaves behind."""

    keys_values: Float[Tensor, "L 2 K s d"]
    logits: Float[Tensor, " V"]
    """Of the token after its last one."""


class PackedPrompts:
    """The attention plan of such a pass: tokens ``borders[i]`` … ``borders[i+1]`` − 1 are prompt i.

    Spare tokens (``shape_bucketing``) come after them and see nothing.
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

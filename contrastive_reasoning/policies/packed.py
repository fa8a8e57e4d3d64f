"""A pass without padding: the tokens of several rollouts in one row, each prompt once, positions restarted.

    tokens      prompt 0 · · ·  prompt 1 · ·  completion 0 · ·  completion 1 · · ·  …        (1, N)
    positions   0 1 2 3         0 1 2         4 5 6             4 5 6 7               both continue prompt 0

All but attention treats tokens one by one, and attention follows the plan. Spare tokens (``few_shapes``) come before
the others, and each sees itself alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from contrastive_reasoning.policies.attention import AttentionPlan
from contrastive_reasoning.policies.few_shapes import spare_rows
from contrastive_reasoning.policies.pass_cost import Lengths, completion_blocks, prompt_blocks
from contrastive_reasoning.policies.shared_prompts import SharedPrompts, causal_block, continuing_block


@dataclass(frozen=True, kw_only=True)
class Packed:
    """What a packed pass is given, and where in it the completions are."""

    ids: Int[Tensor, "1 N"]
    positions: Int[Tensor, "1 N"]
    plan: AttentionPlan
    predicting: Int[Tensor, " n"]
    """Of each completion token, row by row, the place of the token before it. The n themselves come last in ``ids``."""


def packed(
    prompt_ids: Int[Tensor, "p s"],
    prompt_mask: Bool[Tensor, "p s"],
    completion_ids: Int[Tensor, "b t"],
    mask: Bool[Tensor, "b t"],
    owner: Int[Tensor, " b"],
    lengths: Lengths,
    *,
    dtype: torch.dtype,
) -> Packed:
    """Pack the rows of a pass.

    Args:
        prompt_ids: prompts of at least one token, padded on either side.
        prompt_mask: where their tokens are.
        completion_ids: padded on the right; a completion may be empty.
        mask: where their tokens are.
        owner: the prompt that each completion continues.
        lengths: the same in numbers.
        dtype: of the scores of attention, and of the products.
    """
    device = mask.device
    sizes, own_sizes = prompt_mask.sum(dim=1), mask.sum(dim=1)
    spare = torch.zeros(spare_rows(lengths.packed, device, dtype), dtype=torch.long, device=device)
    starts = len(spare) + _starts(sizes)
    own_starts = len(spare) + int(sizes.sum()) + _starts(own_sizes)
    own_positions = sizes[owner][:, None] + mask.cumsum(dim=1) - 1
    blocks = [
        causal_block(starts[rows], sizes[rows])
        for rows in (torch.tensor(block, device=device) for block in prompt_blocks(lengths))
    ] + [
        continuing_block(own_starts[rows], own_sizes[rows], starts[owner[rows]], sizes[owner[rows]], dtype)
        for rows in (torch.tensor(block, device=device) for block in completion_blocks(lengths))
    ]
    if len(spare):
        blocks.append(causal_block(torch.arange(len(spare), device=device), torch.ones_like(spare)))
    return Packed(
        ids=torch.cat([spare, prompt_ids[prompt_mask], completion_ids[mask]])[None],
        positions=torch.cat([spare, prompt_mask.cumsum(dim=1)[prompt_mask] - 1, own_positions[mask]])[None],
        plan=SharedPrompts(blocks),
        predicting=_before(starts + sizes - 1, own_starts, mask, owner),
    )


def _starts(sizes: Int[Tensor, " r"]) -> Int[Tensor, " r"]:
    return sizes.cumsum(dim=0) - sizes


def _before(
    last: Int[Tensor, " p"], starts: Int[Tensor, " b"], mask: Bool[Tensor, "b t"], owner: Int[Tensor, " b"]
) -> Int[Tensor, " n"]:
    """The place before each completion token: of the first that of its prompt's last token."""
    steps = torch.arange(mask.shape[1], device=mask.device)
    own = starts[:, None] + steps - 1
    return torch.where(steps == 0, last[owner][:, None], own)[mask]

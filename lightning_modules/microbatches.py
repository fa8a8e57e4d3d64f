"""Micro-batches by token budget: groups together, so that their prompt is computed once; longest first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from contrastive_reasoning.distributed import most
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.flops import NO_WORK, Work, work_of
from contrastive_reasoning.policies.pass_cost import Lengths
from contrastive_reasoning.rollout.batch import RolloutTokens


def rows_by_budget(
    groups: Sequence[Sequence[int]], *, tokens: Callable[[list[int]], int], budget: int
) -> list[list[int]]:
    """Rows in micro-batches of at most ``budget`` tokens; every row is in exactly one.

    A group goes whole into the micro-batch that is being filled, or begins the next. One that is too large even for a
    micro-batch of its own is split, and a row above the budget is a micro-batch by itself.

    Args:
        groups: in the order in which they are placed.
        tokens: what goes through the policy for these rows.
        budget: the most of it.
    """
    if budget < 1:
        raise ValueError(f"microbatch_tokens must be at least 1, got {budget}")
    batches: list[list[int]] = []
    for group in groups:
        whole = tokens(list(group)) <= budget
        for part in [list(group)] if whole else [[row] for row in group]:
            if batches and tokens(batches[-1] + part) <= budget:
                batches[-1] += part
            else:
                batches.append(part)
    return batches


def in_parts(batches: Sequence[list[int]], count: int, *, tokens: Callable[[list[int]], int]) -> list[list[int]]:
    """The same rows in at least ``count`` micro-batches where they can be cut so far, the largest cut first.

    Where ranks exchange something in every micro-batch all need as many, and the one with fewer has smaller ones then.
    """
    parts = [list(batch) for batch in batches]
    while len(parts) < count and any(len(part) > 1 for part in parts):
        place = max((i for i, part in enumerate(parts) if len(part) > 1), key=lambda i: tokens(parts[i]))
        half = (len(parts[place]) + 1) // 2
        parts[place : place + 1] = [parts[place][:half], parts[place][half:]]
    return parts


@dataclass(frozen=True, kw_only=True)
class Microbatch:
    """Some rows of a rollout batch, each of their prompts once, without the padding that only other rows need."""

    rows: Int[Tensor, " b"]
    """Which rows of the rollout batch these are."""
    prompt_ids: Int[Tensor, "p s"]
    prompt_mask: Bool[Tensor, "p s"]
    owner: Int[Tensor, " b"]
    """Which of the prompts each row continues."""
    completion_ids: Int[Tensor, "b t"]
    mask: Bool[Tensor, "b t"]
    idle: bool = False
    """It is passed through the policy only because other ranks have more micro-batches, and teaches nothing."""

    def of(self, values: Tensor) -> Tensor:
        """The part of a (B,T) tensor that belongs to these rows: (b,t)."""
        return values[self.rows, : self.mask.shape[1]]

    @property
    def lengths(self) -> Lengths:
        """In tokens, without padding."""
        return Lengths(
            prompts=self.prompt_mask.sum(dim=1).tolist(),
            completions=self.mask.sum(dim=1).tolist(),
            owner=self.owner.tolist(),
        )


def microbatches(
    rollouts: RolloutTokens, policy: CausalLMPolicy, *, rows: Bool[Tensor, " B"] | None = None, max_tokens: int
) -> Iterator[Microbatch]:
    """The chosen rows of ``rollouts`` (None: all), each in one micro-batch.

    Of at most ``max_tokens`` tokens that go through ``policy``: packed ones where it packs, padded ones where it pads.
    A policy that always pads has nothing to gain from groups, and rows of like length go together instead. Every rank
    gets as many: see ``in_parts``; where a rank has too few rows for that, some are idle.
    """
    chosen = range(len(rollouts)) if rows is None else rows.nonzero()[:, 0].tolist()
    prompts, completions = rollouts.prompt_mask.sum(dim=1).tolist(), rollouts.mask.sum(dim=1).tolist()
    size = rollouts.group_size
    lengths = {row: prompts[row // size] + completions[row] for row in chosen}
    longest_first = sorted(chosen, key=lambda row: (-lengths[row], row))
    groups: dict[int, list[int]] = {}
    for row in longest_first:
        groups.setdefault(row // size if policy.plans_attention else row, []).append(row)

    def tokens(batch: list[int]) -> int:
        owners = [row // size for row in batch]
        place = {prompt: i for i, prompt in enumerate(dict.fromkeys(owners))}
        return policy.pass_tokens(
            Lengths(
                prompts=[prompts[prompt] for prompt in place],
                completions=[completions[row] for row in batch],
                owner=[place[prompt] for prompt in owners],
            )
        )

    batches = rows_by_budget(list(groups.values()), tokens=tokens, budget=max_tokens)
    count = most(len(batches))
    parts = in_parts(batches, count, tokens=tokens)
    for batch in parts:
        yield select(rollouts, torch.tensor(batch, device=rollouts.mask.device))
    for _ in range(count - len(parts)):
        yield replace(select(rollouts, torch.tensor([0], device=rollouts.mask.device)), idle=True)


def select(rollouts: RolloutTokens, rows: Int[Tensor, " b"]) -> Microbatch:
    """The given rows: prompts cut on the left, completions on the right, to the longest of them."""
    prompts, owner = torch.unique(rows // rollouts.group_size, return_inverse=True)
    prompt_mask, mask = rollouts.prompt_mask[prompts], rollouts.mask[rows]
    prompt_width = max(int(prompt_mask.sum(dim=1).max()), 1)
    width = max(int(mask.sum(dim=1).max()), 1)
    return Microbatch(
        rows=rows,
        prompt_ids=rollouts.prompt_ids[prompts][:, -prompt_width:],
        prompt_mask=prompt_mask[:, -prompt_width:],
        owner=owner,
        completion_ids=rollouts.completion_ids[rows][:, :width],
        mask=mask[:, :width],
    )


def work_of_split(policy: CausalLMPolicy, split: Sequence[Microbatch]) -> Work:
    """What one pass of ``policy`` over all of these asks for, and how much of it is padding."""
    work = NO_WORK
    for lengths in (microbatch.lengths for microbatch in split if not microbatch.idle):
        positions = policy.pass_tokens(lengths)
        work += work_of(lengths.prompts, lengths.completions, lengths.owner, positions=positions)
    return work

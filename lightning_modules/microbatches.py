"""Micro-batches by token budget: rows of similar length together, so that little is padded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from contrastive_reasoning.rollout.batch import RolloutBatch


def rows_by_budget(lengths: Sequence[tuple[int, int]], *, max_tokens: int) -> list[list[int]]:
    """Rows in micro-batches of at most ``max_tokens`` padded tokens; every row is in exactly one.

    Sorted by length, longest first: the largest micro-batch comes first, so memory that does not suffice fails at once.
    A row longer than the budget is a micro-batch of its own.

    Args:
        lengths: prompt and completion tokens of each row. Both are padded apart, to the longest of the micro-batch.
        max_tokens: the budget.
    """
    if max_tokens < 1:
        raise ValueError(f"microbatch_tokens must be at least 1, got {max_tokens}")
    groups: list[list[int]] = []
    widths = (0, 0)
    for row in sorted(range(len(lengths)), key=lambda i: (-sum(lengths[i]), i)):
        wider = (max(widths[0], lengths[row][0]), max(widths[1], lengths[row][1]))
        if groups and (len(groups[-1]) + 1) * sum(wider) <= max_tokens:
            groups[-1].append(row)
            widths = wider
        else:
            groups.append([row])
            widths = lengths[row]
    return groups


@dataclass(frozen=True, kw_only=True)
class Microbatch:
    """Some rows of a rollout batch, without the padding that only other rows need."""

    rows: Int[Tensor, " b"]
    """Which rows of the rollout batch these are."""
    prompt_ids: Int[Tensor, "b s"]
    prompt_mask: Bool[Tensor, "b s"]
    completion_ids: Int[Tensor, "b t"]
    mask: Bool[Tensor, "b t"]

    def of(self, values: Tensor) -> Tensor:
        """The part of a (B,T) tensor that belongs to these rows: (b,t)."""
        return values[self.rows, : self.mask.shape[1]]


def microbatches(
    rollouts: RolloutBatch, *, rows: Bool[Tensor, " B"] | None = None, max_tokens: int
) -> Iterator[Microbatch]:
    """The chosen rows of ``rollouts`` (None: all), each in one micro-batch of at most ``max_tokens`` padded tokens."""
    chosen = torch.arange(len(rollouts), device=rollouts.mask.device) if rows is None else rows.nonzero()[:, 0]
    prompts = rollouts.prompt_mask.sum(dim=1)[chosen // rollouts.group_size].tolist()
    completions = rollouts.mask.sum(dim=1)[chosen].tolist()
    for places in rows_by_budget(list(zip(prompts, completions, strict=True)), max_tokens=max_tokens):
        yield select(rollouts, chosen[torch.tensor(places, device=chosen.device)])


def select(rollouts: RolloutBatch, rows: Int[Tensor, " b"]) -> Microbatch:
    """The given rows: prompts cut on the left, completions on the right, to the longest of them."""
    prompt_mask, mask = rollouts.prompt_mask[rows // rollouts.group_size], rollouts.mask[rows]
    prompt_width = max(int(prompt_mask.sum(dim=1).max()), 1)
    width = max(int(mask.sum(dim=1).max()), 1)
    return Microbatch(
        rows=rows,
        prompt_ids=rollouts.prompt_ids[rows // rollouts.group_size][:, -prompt_width:],
        prompt_mask=prompt_mask[:, -prompt_width:],
        completion_ids=rollouts.completion_ids[rows][:, :width],
        mask=mask[:, :width],
    )

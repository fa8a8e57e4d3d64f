"""Whole groups of several rollout batches as one batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from contrastive_reasoning.rollout.batch import RolloutBatch

Values = Sequence[Sequence[float | None]]


class Pick(NamedTuple):
    """A group: the one of problem ``problem`` in batch ``batch``."""

    batch: int
    problem: int


def join_groups(batches: Sequence[RolloutBatch], picks: Sequence[Pick], *, pad_token_id: int) -> RolloutBatch:
    """The picked groups in the given order, no wider than the longest prompt and completion among them.

    Raises:
        ValueError: for no picks, or batches that were drawn in different ways.
    """
    if not picks:
        raise ValueError("no groups were picked: a rollout batch has at least one")
    _check_alike(batches)
    groups = [(batches[b], p, _rows(batches[b], p)) for b, p in picks]
    prompt_mask = _below([batch.prompt_mask[p : p + 1] for batch, p, _ in groups], 0, left=True)
    mask = _below([batch.mask[rows] for batch, _, rows in groups], 0)
    start, length = -int(prompt_mask.sum(dim=1).max()), int(mask.sum(dim=1).max())
    prompt_ids = _below([batch.prompt_ids[p : p + 1] for batch, p, _ in groups], pad_token_id, left=True)
    return RolloutBatch(
        problems=[batch.problems[p] for batch, p, _ in groups],
        prompt_ids=prompt_ids[:, start:],
        prompt_mask=prompt_mask[:, start:],
        completion_ids=_below([batch.completion_ids[rows] for batch, _, rows in groups], pad_token_id)[:, :length],
        mask=mask[:, :length],
        old_log_probs=_below([batch.old_log_probs[rows] for batch, _, rows in groups], 0)[:, :length],
        temperature=batches[0].temperature,
        pooled=_pooled([None if batch.pooled is None else batch.pooled[rows] for batch, _, rows in groups]),
        texts=[text for batch, _, rows in groups for text in batch.texts[rows]],
        token_spans=[spans for batch, _, rows in groups for spans in batch.token_spans[rows]],
        finish_reasons=[reason for batch, _, rows in groups for reason in batch.finish_reasons[rows]],
        group_size=batches[0].group_size,
        prefix_values=_prefix_values([batch.prefix_values and batch.prefix_values[rows] for batch, _, rows in groups]),
    )


def _check_alike(batches: Sequence[RolloutBatch]) -> None:
    for name in ("group_size", "temperature"):
        if len(found := {getattr(batch, name) for batch in batches}) > 1:
            raise ValueError(f"groups of different {name} cannot be joined: {', '.join(map(str, sorted(found)))}")
    for name, what in {"pooled": "pooled states", "prefix_values": "values of prefixes"}.items():
        if len({getattr(batch, name) is None for batch in batches}) > 1:
            raise ValueError(f"groups with {what} cannot be joined with groups without")


def _pooled(parts: Sequence[Tensor | None]) -> Tensor | None:
    found = [part for part in parts if part is not None]
    return torch.cat(found) if found else None


def _prefix_values(parts: Sequence[Values | None]) -> Values | None:
    found = [row for part in parts if part is not None for row in part]
    return found or None


def _rows(batch: RolloutBatch, problem: int) -> slice:
    return slice(problem * batch.group_size, (problem + 1) * batch.group_size)


def _below(parts: Sequence[Tensor], fill: int, *, left: bool = False) -> Tensor:
    """Matrices of different width one below the other, filled up on the right or on the left."""
    width = max(part.shape[1] for part in parts)
    gaps = [width - part.shape[1] for part in parts]
    return torch.cat(
        [pad(part, (gap, 0) if left else (0, gap), value=fill) for part, gap in zip(parts, gaps, strict=True)]
    )

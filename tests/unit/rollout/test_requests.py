"""Rows cut to a token budget."""

from __future__ import annotations

import torch

from contrastive_reasoning.rollout.requests import Requests


def requests(lengths: list[int], limit: int, group_size: int) -> Requests:
    mask = torch.arange(max(lengths)).flip(0) < torch.tensor(lengths)[:, None]
    return Requests(
        prompt_ids=mask.long(), prompt_mask=mask, limits=torch.full((len(lengths),), limit), group_size=group_size
    )


def test_chunks_cover_all_rows_in_order_within_the_budget() -> None:
    wanted = requests([3, 9, 1, 4], limit=5, group_size=3)
    for budget in (1, 14, 30, 50, 10_000):
        chunks = list(wanted.chunks(budget))
        assert [row for chunk in chunks for row in chunk] == list(range(12))
        for chunk in chunks:
            widest = max([3, 9, 1, 4][row // 3] + 5 for row in chunk)
            assert len(chunk) == 1 or widest * len(chunk) <= budget
    assert list(wanted.chunks(10_000)) == [range(12)]


def test_prompts_of_rows_are_the_distinct_ones_without_needless_padding() -> None:
    ids, mask, owner = requests([3, 9, 1, 4], limit=5, group_size=3).prompts_of(range(7, 11))
    assert ids.shape == (2, 4)
    assert mask.sum(1).tolist() == [1, 4]
    assert owner.tolist() == [0, 0, 1, 1]

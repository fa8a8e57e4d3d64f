"""``Schedule`` joins rows in order and within the token budget, and at least one row always runs."""

from __future__ import annotations

import random

import pytest
import torch

from contrastive_reasoning.rollout.continuous import Schedule
from contrastive_reasoning.rollout.requests import Requests

LENGTHS = [3, 9, 1, 4]


def reserved(running: list[int], begun: int | None, *, limit: int, group_size: int) -> int:
    """Slow reference: prompts padded to the longest of them, and a completion of full length for each row."""
    prompts = {row // group_size for row in running} | ({begun} if begun is not None else set())
    return sum(max(LENGTHS[p] for p in prompts) for _ in prompts) + sum(limit for _ in running)


@pytest.mark.parametrize("budget", [1, 14, 30, 50, 10_000])
def test_schedule_joins_all_rows_in_order_within_the_budget(budget: int) -> None:
    rng = random.Random(budget)
    schedule = Schedule(LENGTHS, limit=5, group_size=3, budget=budget)
    running: list[int] = []
    seen: list[int] = []
    while running or schedule.waiting:
        joined = schedule.join(running)
        running, seen = running + joined, seen + joined
        begun = len(seen) // 3 if len(seen) % 3 else None
        assert schedule.reserved(running) == reserved(running, begun, limit=5, group_size=3)
        assert running
        assert len(running) == 1 or schedule.reserved(running) <= budget
        running = rng.sample(running, k=rng.randrange(len(running)))
    assert seen == list(range(12))


def test_schedule_joins_a_row_as_soon_as_it_fits() -> None:
    schedule = Schedule([4, 4], limit=10, group_size=2, budget=28)
    assert schedule.join([]) == [0, 1]
    assert schedule.join([0, 1]) == []
    assert schedule.join([1]) == [2]  # 2 prompts · 4 + 2 rows · 10
    assert schedule.join([1, 2]) == []
    assert schedule.join([2]) == [3]
    assert not schedule.waiting


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


def test_prompts_of_returns_distinct_prompts_with_minimal_padding() -> None:
    ids, mask, owner = requests([3, 9, 1, 4], limit=5, group_size=3).prompts_of(range(7, 11))
    assert ids.shape == (2, 4)
    assert mask.sum(1).tolist() == [1, 4]
    assert owner.tolist() == [0, 0, 1, 1]

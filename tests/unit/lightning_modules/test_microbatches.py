from __future__ import annotations

import random

import pytest
import torch

from contrastive_reasoning.rollout import RolloutBatch
from contrastive_reasoning.tasks.base import Problem
from lightning_modules.microbatches import microbatches, rows_by_budget


@pytest.mark.parametrize("seed", range(20))
def test_every_row_once_and_within_the_budget(seed: int) -> None:
    rng = random.Random(seed)
    lengths = [(rng.randrange(1, 30), rng.randrange(1, 50)) for _ in range(rng.randrange(1, 60))]
    budget = rng.choice([1, 40, 200, 10_000])
    groups = rows_by_budget(lengths, max_tokens=budget)
    assert sorted(row for rows in groups for row in rows) == list(range(len(lengths)))
    for rows in groups:
        padded = len(rows) * (max(lengths[row][0] for row in rows) + max(lengths[row][1] for row in rows))
        assert padded <= budget or len(rows) == 1


def test_rows_of_like_length_go_together() -> None:
    assert rows_by_budget([(1, 1), (1, 9), (1, 1), (1, 9)], max_tokens=20) == [[1, 3], [0, 2]]


def test_budget_is_checked() -> None:
    with pytest.raises(ValueError, match="microbatch_tokens must be at least 1, got 0"):
        rows_by_budget([(1, 1)], max_tokens=0)


def rollouts() -> RolloutBatch:
    """Two prompts of 3 and 1 tokens, two completions each, of 1 to 4 tokens; token ids name their row and place."""
    lengths, prompt_lengths = torch.tensor([4, 1, 2, 2]), torch.tensor([3, 1])
    mask = torch.arange(4) < lengths[:, None]
    ids = 10 * torch.arange(1, 5)[:, None] + torch.arange(4)
    return RolloutBatch(
        problems=[Problem(id=name, prompt=name, answer="") for name in "ab"],
        prompt_ids=torch.tensor([[1, 2, 3], [0, 0, 6]]),
        prompt_mask=torch.arange(3) >= 3 - prompt_lengths[:, None],
        completion_ids=ids * mask,
        mask=mask,
        old_log_probs=torch.zeros(4, 4),
        temperature=1.0,
        pooled=None,
        texts=[""] * 4,
        token_spans=[[]] * 4,
        finish_reasons=["stop"] * 4,
        group_size=2,
    )


def test_padding_of_others_is_cut_off() -> None:
    parts = list(microbatches(rollouts(), max_tokens=7))
    assert [part.rows.tolist() for part in parts] == [[0], [1], [2, 3]]
    assert [part.prompt_ids.tolist() for part in parts] == [[[1, 2, 3]], [[1, 2, 3]], [[6], [6]]]
    assert [part.completion_ids.tolist() for part in parts] == [[[10, 11, 12, 13]], [[20]], [[30, 31], [40, 41]]]
    assert all(part.mask.all() and part.prompt_mask.all() for part in parts)


def test_of_takes_the_same_rows_and_columns() -> None:
    whole = rollouts()
    for part in microbatches(whole, max_tokens=7):
        assert torch.equal(part.of(whole.completion_ids), part.completion_ids)

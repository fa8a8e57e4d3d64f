from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import torch

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.tiny import train_tokenizer
from contrastive_reasoning.rollout import RolloutBatch
from contrastive_reasoning.tasks.base import Problem
from lightning_modules.microbatches import cut_into_parts, microbatches, rows_by_budget
from tests.rollout_batches import rollout_batch
from tests.tiny_models import tiny_llama, tiny_policy


def test_rows_by_budget_has_every_row_once_within_budget() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        sizes = [rng.randrange(1, 50) for _ in range(rng.randrange(1, 60))]
        groups = [list(range(i, min(i + 4, len(sizes)))) for i in range(0, len(sizes), 4)]
        budget = rng.choice([1, 40, 200, 10_000])

        def tokens(rows: list[int], sizes: list[int] = sizes) -> int:
            return sum(sizes[row] for row in rows)

        batches = rows_by_budget(groups, tokens=tokens, budget=budget)
        assert sorted(row for rows in batches for row in rows) == list(range(len(sizes))), seed
        assert all(tokens(rows) <= budget or len(rows) == 1 for rows in batches), seed
        for group in groups:
            assert any(set(group) <= set(rows) for rows in batches) or tokens(group) > budget, seed


def test_rows_by_budget_rejects_zero_budget() -> None:
    with pytest.raises(ValueError, match=r"microbatch_tokens.*0"):
        rows_by_budget([[0]], tokens=len, budget=0)


def test_cut_into_parts_splits_largest_microbatches() -> None:
    def tokens(rows: list[int]) -> int:
        return sum(row + 1 for row in rows)

    batches = [[6, 5, 4], [3, 2, 1, 0]]
    assert cut_into_parts(batches, 1, tokens=tokens) == batches
    assert cut_into_parts(batches, 3, tokens=tokens) == [[6, 5], [4], [3, 2, 1, 0]], "the largest first"
    assert cut_into_parts(batches, 4, tokens=tokens) == [[6], [5], [4], [3, 2, 1, 0]]
    assert cut_into_parts(batches, 9, tokens=tokens) == [[6], [5], [4], [3], [2], [1], [0]], "a row is not cut"


def rollouts(prompts: Sequence[int] = (3, 1), lengths: Sequence[int] = (4, 1, 2, 2)) -> RolloutBatch:
    """Prompts and completions of these lengths; ids of completions encode row and position."""
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    prompt_mask = torch.arange(max(prompts)) >= max(prompts) - torch.tensor(prompts)[:, None]
    return rollout_batch(
        [Problem(id=str(number), prompt="", answer="") for number in range(len(prompts))],
        mask,
        prompt_ids=torch.arange(1, prompt_mask.numel() + 1).view(prompt_mask.shape) * prompt_mask,
        prompt_mask=prompt_mask,
        completion_ids=(10 * torch.arange(1, len(lengths) + 1)[:, None] + torch.arange(max(lengths))) * mask,
    )


def policy(plans: bool) -> CausalLMPolicy:
    tokenizer = train_tokenizer(["1+2=3"], vocab_size=270)
    model = tiny_llama(tokenizer, hidden_size=16)
    if not plans:
        model.set_attn_implementation("eager")
    return tiny_policy(tokenizer, model)


def test_microbatches_cut_padding_of_other_rows() -> None:
    """Padded rows of similar length share a micro-batch, whatever their group."""
    parts = list(microbatches(rollouts(), policy(plans=False), max_tokens=7))
    assert [part.rows.tolist() for part in parts] == [[0], [1], [2, 3]]
    assert [part.prompt_ids.tolist() for part in parts] == [[[1, 2, 3]], [[1, 2, 3]], [[6]]]
    assert [part.owner.tolist() for part in parts] == [[0], [0], [0, 0]]
    assert [part.completion_ids.tolist() for part in parts] == [[[10, 11, 12, 13]], [[20]], [[30, 31], [40, 41]]]
    assert all(part.mask.all() and part.prompt_mask.all() for part in parts)


def long_prompts(groups: int = 4) -> RolloutBatch:
    """Prompts of 60 tokens and slightly less, groups of four completions of 1 to 8."""
    return rollouts([60 - group for group in range(groups)], [1 + (5 * row) % 8 for row in range(4 * groups)])


def test_microbatches_count_packed_tokens() -> None:
    """Packed, two groups of 60 + 18 tokens fit into 160; as padded rows of 68 they would take 544."""
    whole = long_prompts()
    parts = list(microbatches(whole, policy(plans=True), max_tokens=160))
    assert [len(part.prompt_ids) for part in parts] == [2, 2]
    assert all(torch.equal(part.of(whole.completion_ids), part.completion_ids) for part in parts)
    passed = [int(part.prompt_mask.sum() + part.mask.sum()) for part in parts]
    assert passed[0] == max(passed), "the longest first"
    assert max(passed) <= 160
    assert sum(passed) == int(whole.prompt_mask.sum() + whole.mask.sum()), "each prompt goes through once"


def test_group_above_budget_is_split_and_prompt_repeated() -> None:
    parts = list(microbatches(long_prompts(groups=1), policy(plans=True), max_tokens=72))
    assert len(parts) > 1
    assert sorted(row for part in parts for row in part.rows.tolist()) == [0, 1, 2, 3]
    assert all(len(part.prompt_ids) == 1 for part in parts)
    assert all(part.prompt_mask.sum() + part.mask.sum() <= 72 for part in parts)

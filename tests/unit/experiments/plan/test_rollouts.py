"""The plan's micro-batches and first rows against those of the code that trains and samples."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from types import SimpleNamespace

import pytest

from contrastive_reasoning.policies.pass_cost import Lengths, Sizes, packing_pays
from contrastive_reasoning.policies.shape import QWEN_3B
from contrastive_reasoning.rollout.engine import Schedule
from experiments.plan.rollouts import Rollouts, Rows, cache_bytes, first_rows, fullest_microbatch
from lightning_modules.microbatches import rows_by_budget
from tests.unit.experiments.plan.learners import whole_on_cpu

PAPER = Rollouts(
    problems=512,
    group_size=16,
    prompt_tokens=512,
    completion_tokens=2048,
    mean_tokens=2048,
    microbatch_tokens=16384,
    assumed=False,
)


def tokens(lengths: Lengths) -> int:
    return lengths.packed if packing_pays(lengths, Sizes.of(QWEN_3B)) else lengths.padded


def largest_microbatch(rollouts: Rollouts, completions: list[int]) -> int:
    """Returns the tokens of the largest micro-batch that training makes of completions of these lengths."""
    size = rollouts.group_size

    def tokens_of(rows: list[int]) -> int:
        owners = list(dict.fromkeys(row // size for row in rows))
        lengths = Lengths(
            prompts=[rollouts.prompt_tokens] * len(owners),
            completions=[completions[row] for row in rows],
            owner=[owners.index(row // size) for row in rows],
        )
        return tokens(lengths)

    groups = [list(range(start, start + size)) for start in range(0, len(completions), size)]
    return max(map(tokens_of, rows_by_budget(groups, tokens=tokens_of, budget=rollouts.microbatch_tokens)))


@pytest.mark.parametrize("completion", [30, 100, 700, 2048])
@pytest.mark.parametrize("budget", [500, 4096, 16384])
def test_fullest_microbatch_bounds_real_microbatches(completion: int, budget: int) -> None:
    rollouts = replace(PAPER, problems=6, completion_tokens=completion, microbatch_tokens=budget)
    planned = tokens(fullest_microbatch(rollouts, QWEN_3B, problems=6))
    longest = [completion] * 96
    assert largest_microbatch(rollouts, longest) <= planned <= max(budget, rollouts.prompt_tokens + completion)
    rounding = 96  # a token of each row
    for seed in range(5):
        drawn = Random(seed)
        some = [drawn.randint(completion // 2, completion) for _ in longest]
        assert largest_microbatch(rollouts, some) <= planned + rounding


def test_fullest_microbatch_splits_large_group_into_rows() -> None:
    lengths = fullest_microbatch(PAPER, QWEN_3B, problems=64)
    assert len(lengths.prompts) == 1
    assert (len(lengths.completions), lengths.completions[0]) == (8, 1984)  # (16384 − 512) / 8


@pytest.mark.parametrize(
    ("prompts", "group", "prompt", "completion", "budget"),
    [(64, 16, 512, 2048, 65536), (3, 4, 10, 20, 100), (2, 8, 100, 1, 150), (1, 2, 50, 50, 10), (4, 4, 5, 5, 10_000)],
)
def test_first_rows_match_schedule(prompts: int, group: int, prompt: int, completion: int, budget: int) -> None:
    schedule = Schedule([prompt] * prompts, limit=completion, group_size=group, budget=budget)
    joined = schedule.join([])
    rollouts = replace(PAPER, group_size=group, prompt_tokens=prompt, completion_tokens=completion)
    rows = first_rows(SimpleNamespace(max_batch_tokens=budget), rollouts, prompts=prompts)
    assert (rows.rows, rows.waiting) == (len(joined), schedule.waiting)
    held = len(schedule.held(joined))
    assert rows.prompts == held


def test_cache_bytes_counts_larger_block_twice() -> None:
    learner, token = whole_on_cpu(QWEN_3B), 2 * 36 * 2 * 128 * 4  # keys and values, layers, heads, width, fp32
    rows = Rows(prompts=2, rows=4, prompt_tokens=9, completion_tokens=3, waiting=False)
    assert cache_bytes(learner, rows) == (20 + 20) * token
    assert cache_bytes(learner, replace(rows, waiting=True)) == (20 + 20 + 12) * token
    assert cache_bytes(learner, replace(rows, completion_tokens=10)) == (20 + 40) * token

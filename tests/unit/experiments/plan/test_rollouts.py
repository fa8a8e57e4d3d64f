"""The plan's micro-batches, first rows and cache against those of the code that trains and samples."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace

import pytest

from contrastive_reasoning.policies.pass_cost import Lengths, Sizes, packing_pays
from contrastive_reasoning.policies.shape import QWEN_3B
from contrastive_reasoning.rollout.continuous import Schedule
from experiments.plan.memory import by_name
from experiments.plan.stages import Rollouts, Rows, first_rows, fullest_microbatch, rollout_parts
from lightning_modules.microbatches import rows_by_budget
from tests.unit.experiments.plan.learners import rollouts_of, whole_on_cpu


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
@pytest.mark.parametrize("prompt", [20, 512])
def test_fullest_microbatch_bounds_real_microbatches(prompt: int, budget: int, completion: int) -> None:
    rollouts = rollouts_of(6, 16, prompt, completion, microbatch=budget)
    fullest = fullest_microbatch(rollouts, problems=6)
    planned, longest = tokens(fullest), [completion] * 96
    assert fullest.packed <= max(budget, prompt + completion)
    assert planned <= max(budget, prompt + completion) * 1.04, "in padded rows each has its own copy of the prompt"
    assert largest_microbatch(rollouts, longest) <= planned
    rounding = 96  # a token of each row
    for seed in range(5):
        drawn = Random(seed)
        some = [drawn.randint(completion // 2, completion) for _ in longest]
        assert largest_microbatch(rollouts, some) <= planned + rounding


def test_fullest_microbatch_splits_large_group_into_rows() -> None:
    lengths = fullest_microbatch(rollouts_of(512, 16, 512, 2048, microbatch=16384), problems=64)
    assert len(lengths.prompts) == 1
    assert (len(lengths.completions), lengths.completions[0]) == (8, 1984)  # (16384 − 512) / 8


@pytest.mark.parametrize(
    ("prompts", "group", "prompt", "completion", "budget"),
    [(64, 16, 512, 2048, 65536), (3, 4, 10, 20, 100), (2, 8, 100, 1, 150), (1, 2, 50, 50, 10), (4, 4, 5, 5, 10_000)],
)
def test_first_rows_match_schedule(prompts: int, group: int, prompt: int, completion: int, budget: int) -> None:
    schedule = Schedule([prompt] * prompts, limit=completion, group_size=group, budget=budget)
    joined = schedule.join([])
    rollouts = rollouts_of(prompts, group, prompt, completion)
    rows = first_rows(SimpleNamespace(max_batch_tokens=budget), rollouts, prompts=prompts)
    assert rows == Rows(len(schedule.held(joined)), len(joined), schedule.waiting)


@pytest.mark.parametrize(("completion", "waiting", "held"), [(3, False, 40), (3, True, 52), (10, False, 60)])
def test_cache_counts_larger_block_twice(completion: int, waiting: bool, held: int) -> None:
    token = 2 * 36 * 2 * 128 * 4  # keys and values, layers, heads, width, fp32
    rollouts, rows = rollouts_of(2, 2, 9, completion), Rows(2, 4, waiting)
    parts = rollout_parts(whole_on_cpu(QWEN_3B), rollouts, rows, by_name("cpu", 1), copied=False)
    assert parts["cache"] == held * token

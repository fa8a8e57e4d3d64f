"""Continued completions: input tokens, log-probs, limits, stop strings, and what the draws depend on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.rollout import Engine, RolloutBatch, Sampling
from contrastive_reasoning.rollout.sampling import row_uniforms
from tests.unit.rollout.rollout_kit import Problems, row_by_row

ENGINE = Engine(max_batch_tokens=10_000)
SAMPLED = Sampling(temperature=0.8, top_k=None, top_p=1.0, max_tokens=24, stop=[])
GREEDY = replace(SAMPLED, temperature=0.0)


def completion_tokens(rollouts: RolloutBatch) -> list[list[int]]:
    return [ids[there].tolist() for ids, there in zip(rollouts.completion_ids, rollouts.mask, strict=True)]


def prefixes_of(policy: CausalLMPolicy, problems: Problems, *, longest: int) -> list[list[int]]:
    """Beginnings of sampled completions, without end tokens; their lengths differ, and one is empty."""
    rows = completion_tokens(ENGINE.generate(policy, problems, group_size=1, sampling=SAMPLED, seed=(5,)))
    ends = set(policy.eos_token_ids)
    return [[token for token in row[: p * longest // 4] if token not in ends] for p, row in enumerate(rows)]


def test_greedy_continuation_of_any_prefix_equals_the_uncut_completion(
    any_policy: CausalLMPolicy, problems: Problems
) -> None:
    wholes = completion_tokens(ENGINE.generate(any_policy, problems, group_size=1, sampling=GREEDY, seed=(0,)))
    cuts = [(p, n) for p, whole in enumerate(wholes) for n in range(0, len(whole), 3)]
    rollouts = ENGINE.generate(
        any_policy,
        [problems[p] for p, _ in cuts],
        group_size=1,
        sampling=GREEDY,
        seed=(0,),
        prefixes=[wholes[p][:n] for p, n in cuts],
    )
    assert completion_tokens(rollouts) == [wholes[p][n:] for p, n in cuts]
    for row, (p, n) in enumerate(cuts):
        prompt = rollouts.prompt_ids[row][rollouts.prompt_mask[row]].tolist()
        assert prompt == any_policy.prompt_ids(problems[p].prompt) + wholes[p][:n]


def test_continuation_log_probs_match_a_pass_over_each_row(any_policy: CausalLMPolicy, problems: Problems) -> None:
    prefixes = prefixes_of(any_policy, problems, longest=16)
    rollouts = ENGINE.generate(any_policy, problems, group_size=3, sampling=SAMPLED, seed=(1,), prefixes=prefixes)
    assert (row_by_row(any_policy, rollouts)[0] - rollouts.old_log_probs).abs().max() <= 1e-5


def test_prefix_length_counts_towards_max_tokens(policy: CausalLMPolicy, problems: Problems) -> None:
    prefixes = [[7] * n for n in (0, 1, 10, 20, 23)]
    rollouts = ENGINE.generate(policy, problems, group_size=8, sampling=SAMPLED, seed=(2,), prefixes=prefixes)
    for row, tokens in enumerate(completion_tokens(rollouts)):
        left = 24 - len(prefixes[row // 8])
        assert 1 <= len(tokens) <= left
        assert rollouts.finish_reasons[row] == "stop" or len(tokens) == left
    assert "length" in rollouts.finish_reasons


def test_continuations_depend_on_the_seed_but_not_on_other_rows_or_budget(
    policy: CausalLMPolicy, problems: Problems
) -> None:
    prefixes = prefixes_of(policy, problems, longest=16)

    def rows_by_problem(order: Sequence[int], seed: int = 3, budget: int = 10_000) -> dict[int, list[list[int]]]:
        rollouts = Engine(max_batch_tokens=budget).generate(
            policy,
            [problems[p] for p in order],
            group_size=4,
            sampling=SAMPLED,
            seed=(seed,),
            prefixes=[prefixes[p] for p in order],
        )
        rows = completion_tokens(rollouts)
        return {p: rows[4 * place : 4 * place + 4] for place, p in enumerate(order)}

    whole = rows_by_problem(range(5))
    for budget in (1, 130, 10_000):
        assert rows_by_problem([3, 0, 4, 1, 2], budget=budget) == whole
    assert rows_by_problem([2]) == {2: whole[2]}
    assert rows_by_problem(range(5), seed=4) != whole
    assert len({tuple(row) for row in whole[1]}) > 1, "the rows of a group differ"


def test_row_uniforms_differ_between_prefixes_and_their_repetitions(policy: CausalLMPolicy, problems: Problems) -> None:
    """Compares uniform numbers: [9, 9] and [9] lead to different states, so completions would differ in any case."""

    def uniforms(*prefixes: Sequence[int]) -> list[list[float]]:
        repeated_problem = [problems[0]] * len(prefixes)
        return row_uniforms(repeated_problem, group_size=2, length=3, seed=(0,), prefixes=prefixes).tolist()

    rows = uniforms([9], [9, 9], [99], [9], [])
    assert len({tuple(row) for row in rows}) == 10
    assert rows[:2] == uniforms([9])
    assert rows[6:8] == uniforms([9], [9])[2:]
    assert rows[8:] == row_uniforms(problems[:1], group_size=2, length=3, seed=(0,)).tolist()


def test_stop_string_may_begin_in_the_prefix(policy: CausalLMPolicy, problems: Problems) -> None:
    """The stop string is two adjacent characters of the greedy completion; the prefix ends after the first."""
    free = ENGINE.generate(policy, problems, group_size=1, sampling=replace(GREEDY, max_tokens=60), seed=(0,))
    row, cut, stop = next(
        (row, n, text[start - 1 : start + 1])
        for row, text in enumerate(free.texts)
        for n, (start, end) in enumerate(free.token_spans[row])
        if n > 2 and end == start + 1 and text[start - 1 : start + 1].isascii()
        if text.index(text[start - 1 : start + 1]) == start - 1
    )
    whole = completion_tokens(free)[row]
    rollouts = ENGINE.generate(
        policy,
        problems[row : row + 1],
        group_size=1,
        sampling=replace(GREEDY, max_tokens=60, stop=[stop]),
        seed=(0,),
        prefixes=[whole[:cut]],
    )
    assert completion_tokens(rollouts) == [[whole[cut]]]
    assert rollouts.finish_reasons == ["stop"]


def test_generate_rejects_invalid_prefixes(policy: CausalLMPolicy, problems: Problems) -> None:
    def generate(*prefixes: Sequence[int]) -> RolloutBatch:
        return ENGINE.generate(policy, problems[:1], group_size=2, sampling=SAMPLED, seed=(0,), prefixes=prefixes)

    with pytest.raises(ValueError, match=r"2 .* 1 "):
        generate([], [])
    with pytest.raises(ValueError, match=r"\(3, 4\).* 24 .*max_tokens=24"):
        generate([7] * 24)
    with pytest.raises(ValueError, match=r"\(3, 4\).*end token"):
        generate([7, policy.eos_token_ids[0], 7])

"""Completions that are continued: token-in, the law of log-probs, limits, ends, and what the draws depend on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.rollout import Engine, HFEngine, RolloutBatch, Sampling
from contrastive_reasoning.rollout.sampling import row_uniforms
from contrastive_reasoning.tasks.base import Problem

ENGINES = [Engine(max_batch_tokens=10_000), HFEngine(max_batch_tokens=10_000)]
SAMPLED = Sampling(temperature=0.8, top_k=None, top_p=1.0, max_tokens=24, stop=[])
GREEDY = replace(SAMPLED, temperature=0.0)

both_engines = pytest.mark.parametrize("engine", ENGINES, ids=["own", "hf"])


def written(rollouts: RolloutBatch) -> list[list[int]]:
    return [ids[there].tolist() for ids, there in zip(rollouts.completion_ids, rollouts.mask, strict=True)]


def prefixes_of(policy: CausalLMPolicy, problems: Sequence[Problem], *, longest: int) -> list[list[int]]:
    """The beginnings of sampled completions, of several lengths, none among them, without an end token."""
    rows = written(ENGINES[0].generate(policy, problems, group_size=1, sampling=SAMPLED, seed=(5,)))
    ends = set(policy.eos_token_ids)
    return [[token for token in row[: p * longest // 4] if token not in ends] for p, row in enumerate(rows)]


@both_engines
def test_a_greedy_completion_cut_anywhere_is_continued_as_it_went_on(
    any_policy: CausalLMPolicy, problems: Sequence[Problem], engine: Engine | HFEngine
) -> None:
    wholes = written(engine.generate(any_policy, problems, group_size=1, sampling=GREEDY, seed=(0,)))
    cuts = [(p, n) for p, whole in enumerate(wholes) for n in range(0, len(whole), 3)]
    rollouts = engine.generate(
        any_policy,
        [problems[p] for p, _ in cuts],
        group_size=1,
        sampling=GREEDY,
        seed=(0,),
        prefixes=[wholes[p][:n] for p, n in cuts],
    )
    assert written(rollouts) == [wholes[p][n:] for p, n in cuts]
    for row, (p, n) in enumerate(cuts):
        prompt = rollouts.prompt_ids[row][rollouts.prompt_mask[row]].tolist()
        assert prompt == any_policy.prompt_ids(problems[p].prompt) + wholes[p][:n]


@both_engines
@torch.no_grad()
def test_log_probs_of_continuations_are_those_of_scoring(
    any_policy: CausalLMPolicy, problems: Sequence[Problem], engine: Engine | HFEngine
) -> None:
    """Against the policy's own pass, and against each row by itself without padding."""
    prefixes = prefixes_of(any_policy, problems, longest=16)
    rollouts = engine.generate(any_policy, problems, group_size=3, sampling=SAMPLED, seed=(1,), prefixes=prefixes)
    any_policy.model.eval()
    scored = any_policy.log_probs(
        rollouts.prompt_ids,
        rollouts.prompt_mask,
        rollouts.completion_ids,
        rollouts.mask,
        owner=torch.arange(len(rollouts)) // 3,
        temperature=0.8,
    )
    assert (scored - rollouts.old_log_probs).abs().max() <= 1e-5
    for row, tokens in enumerate(written(rollouts)):
        before = any_policy.prompt_ids(problems[row // 3].prompt) + prefixes[row // 3]
        logits = any_policy.model(torch.tensor([before + tokens])).logits[0, len(before) - 1 : -1] / 0.8
        alone = logits.log_softmax(-1).gather(-1, torch.tensor(tokens)[:, None])[:, 0]
        assert (alone - rollouts.old_log_probs[row, : len(tokens)]).abs().max() <= 1e-5
    any_policy.model.train()


@both_engines
def test_a_continuation_may_have_what_its_prefix_leaves(
    policy: CausalLMPolicy, problems: Sequence[Problem], engine: Engine | HFEngine
) -> None:
    prefixes = [[7] * n for n in (0, 1, 10, 20, 23)]
    rollouts = engine.generate(policy, problems, group_size=8, sampling=SAMPLED, seed=(2,), prefixes=prefixes)
    for row, tokens in enumerate(written(rollouts)):
        left = 24 - len(prefixes[row // 8])
        assert 1 <= len(tokens) <= left
        assert rollouts.finish_reasons[row] == "stop" or len(tokens) == left
    assert "length" in rollouts.finish_reasons


@pytest.mark.parametrize("budget", [1, 130, 10_000])
def test_a_draw_depends_on_seed_problem_and_prefix_not_on_the_other_rows(
    policy: CausalLMPolicy, problems: Sequence[Problem], budget: int
) -> None:
    prefixes = prefixes_of(policy, problems, longest=16)

    def drawn(order: Sequence[int], seed: int = 3, budget: int = 10_000) -> dict[int, list[list[int]]]:
        rollouts = Engine(max_batch_tokens=budget).generate(
            policy,
            [problems[p] for p in order],
            group_size=4,
            sampling=SAMPLED,
            seed=(seed,),
            prefixes=[prefixes[p] for p in order],
        )
        rows = written(rollouts)
        return {p: rows[4 * place : 4 * place + 4] for place, p in enumerate(order)}

    whole = drawn(range(5))
    assert drawn([3, 0, 4, 1, 2], budget=budget) == whole
    assert drawn([2]) == {2: whole[2]}
    assert drawn(range(5), seed=4) != whole
    assert len({tuple(row) for row in whole[1]}) > 1, "the rows of a group differ"


def test_two_prefixes_of_a_problem_are_drawn_with_different_numbers_and_one_twice_goes_on_counting(
    policy: CausalLMPolicy, problems: Sequence[Problem]
) -> None:
    """[9, 9] and [9] lead to different states; that their random numbers differ shows in the uniform numbers."""

    def numbers(*prefixes: Sequence[int]) -> list[list[float]]:
        posed = [problems[0]] * len(prefixes)
        return row_uniforms(posed, group_size=2, length=3, seed=(0,), prefixes=prefixes).tolist()

    rows = numbers([9], [9, 9], [99], [9], [])
    assert len({tuple(row) for row in rows}) == 10
    assert rows[:2] == numbers([9])
    assert rows[6:8] == numbers([9], [9])[2:]
    assert rows[8:] == row_uniforms(problems[:1], group_size=2, length=3, seed=(0,)).tolist()


@both_engines
def test_a_stop_string_may_begin_in_the_prefix(
    policy: CausalLMPolicy, problems: Sequence[Problem], engine: Engine | HFEngine
) -> None:
    """The greedy completion says which two letters come where; they stop it although a prefix holds the first."""
    free = ENGINES[0].generate(policy, problems, group_size=1, sampling=replace(GREEDY, max_tokens=60), seed=(0,))
    row, cut, stop = next(
        (row, n, text[start - 1 : start + 1])
        for row, text in enumerate(free.texts)
        for n, (start, end) in enumerate(free.token_spans[row])
        if n > 2 and end == start + 1 and text[start - 1 : start + 1].isascii()
        if text.index(text[start - 1 : start + 1]) == start - 1
    )
    whole = written(free)[row]
    rollouts = engine.generate(
        policy,
        problems[row : row + 1],
        group_size=1,
        sampling=replace(GREEDY, max_tokens=60, stop=[stop]),
        seed=(0,),
        prefixes=[whole[:cut]],
    )
    assert written(rollouts) == [[whole[cut]]]
    assert rollouts.finish_reasons == ["stop"]


@both_engines
def test_what_cannot_be_continued_is_refused(
    policy: CausalLMPolicy, problems: Sequence[Problem], engine: Engine | HFEngine
) -> None:
    def generate(*prefixes: Sequence[int]) -> RolloutBatch:
        return engine.generate(policy, problems[:1], group_size=2, sampling=SAMPLED, seed=(0,), prefixes=prefixes)

    with pytest.raises(ValueError, match="one for each problem: got 2 for 1 problems"):
        generate([], [])
    with pytest.raises(ValueError, match=r"problem \(3, 4\): a prefix of 24 tokens leaves nothing of max_tokens=24"):
        generate([7] * 24)
    with pytest.raises(ValueError, match=r"problem \(3, 4\): a prefix that holds an end token cannot be continued"):
        generate([7, policy.eos_token_ids[0], 7])

"""Continuation of prefixes by a vLLM server. A prefix is sent as token ids after those of the prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.rollout import Engine, RolloutBatch
from contrastive_reasoning.rollout.vllm import VLLMEngine
from contrastive_reasoning.tasks.base import Problem
from tests.contract.vllm_kit import GREEDY, SEED, scored

if TYPE_CHECKING:
    from tests.contract.recording import Served

OURS = Engine(max_batch_tokens=10_000)


def test_greedy_continuation_matches_our_engine_and_scored_log_probs(
    engine: VLLMEngine, server: Served, policy: CausalLMPolicy, problems: Sequence[Problem]
) -> None:
    whole = OURS.generate(policy, problems, group_size=1, sampling=GREEDY, seed=SEED)
    prefixes = [row[:n].tolist() for n, row in enumerate(whole.completion_ids)]
    ours, theirs = (
        made.generate(policy, problems, group_size=2, sampling=GREEDY, seed=SEED, prefixes=prefixes)
        for made in (OURS, engine)
    )
    for name in ("prompt_ids", "prompt_mask", "completion_ids", "mask"):
        assert torch.equal(getattr(ours, name), getattr(theirs, name)), name
    assert ours.finish_reasons == theirs.finish_reasons
    assert (scored(policy, theirs) - theirs.old_log_probs).abs().max() <= server.backend.closeness
    limits = {tuple(body["prompt"]): body["max_tokens"] for body in server.completions()}
    assert limits == {
        (*policy.prompt_ids(problem.prompt), *prefix): GREEDY.max_tokens - len(prefix)
        for problem, prefix in zip(problems, prefixes, strict=True)
    }


def test_prefixes_of_one_problem_use_different_seeds(
    draw: Callable[..., RolloutBatch], server: Served, problems: Sequence[Problem]
) -> None:
    draw(posed=[problems[0]] * 3, prefixes=[[], [7], [8]])
    assert len({body["seed"] for body in server.completions()}) == 3


def test_stop_string_starting_in_prefix_ends_completion(
    engine: VLLMEngine, policy: CausalLMPolicy, problems: Sequence[Problem]
) -> None:
    """The server misses this stop string: it checks only new text, and the first letter is in the prefix."""
    free = OURS.generate(policy, problems[:1], group_size=1, sampling=replace(GREEDY, max_tokens=60), seed=SEED)
    text, ids = free.texts[0], free.completion_ids[0].tolist()
    cut, stop = next(
        (n, text[start - 1 : start + 1])
        for n, (start, end) in enumerate(free.token_spans[0])
        if n > 2 and end == start + 1 and text[start - 1 : start + 1].isascii()
        if text.index(text[start - 1 : start + 1]) == start - 1
    )
    stopping = replace(GREEDY, max_tokens=60, stop=[stop])
    rollouts = engine.generate(policy, problems[:1], group_size=1, sampling=stopping, seed=SEED, prefixes=[ids[:cut]])
    assert rollouts.completion_ids.tolist() == [[ids[cut]]]
    assert rollouts.finish_reasons == ["stop"]

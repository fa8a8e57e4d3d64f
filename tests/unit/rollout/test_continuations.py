"""Prefixes that end with a step, in tokens; and their values against an enumeration of all that could follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from scipy.stats import binom

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.rollout import Engine, RolloutBatch, Sampling, token_spans
from contrastive_reasoning.rollout.continuations import (
    Prefix,
    distinct,
    problems_of,
    step_prefixes,
    success_rates,
    whole_texts,
)
from contrastive_reasoning.rollout.requests import spelling
from contrastive_reasoning.rollout.spans import text_of
from contrastive_reasoning.tasks.base import Problem, Step, Verdict

SAMPLED = Sampling(temperature=0.9, top_k=None, top_p=1.0, max_tokens=6, stop=[])


class Semicolons:
    """A task whose steps end with ``;``; one with an ``x`` in it is illegal. Right is what it is told is right."""

    name = "semicolons"

    def verify(self, problem: Problem, completion: str) -> Verdict:
        """A third of all texts, whatever they say."""
        total = sum(completion.encode("utf-8", "surrogateescape"))
        return Verdict(status="wrong", reason="") if total % 3 else Verdict(status="ok", reason="")

    def parse_steps(self, problem: Problem, completion: str) -> list[Step]:
        ends = [index + 1 for index, character in enumerate(completion) if character == ";"]
        return [
            Step(start=start, end=end, state=completion[:end], legal="x" not in completion[start:end])
            for start, end in pairwise([0, *ends])
        ]

    def problems(self, split: str) -> Sequence[Problem]:
        return []

    def scores(self, problem: Problem, completion: str) -> dict[str, float]:
        return {}


TASK: Any = Semicolons()


def rollouts_of(policy: CausalLMPolicy, rows: Sequence[Sequence[int]], *problems: Problem) -> RolloutBatch:
    """Completions of the given tokens."""
    table, width = spelling(policy), max(map(len, rows))
    ids = torch.tensor([[*row, *[policy.pad_token_id] * (width - len(row))] for row in rows])
    return RolloutBatch(
        problems=problems,
        prompt_ids=torch.ones(len(problems), 1, dtype=torch.long),
        prompt_mask=torch.ones(len(problems), 1, dtype=torch.bool),
        completion_ids=ids,
        mask=torch.arange(width) < torch.tensor([len(row) for row in rows])[:, None],
        old_log_probs=torch.zeros(ids.shape),
        temperature=1.0,
        pooled=None,
        texts=[text_of(table, row) for row in rows],
        token_spans=[token_spans(table, row) for row in rows],
        finish_reasons=["stop"] * len(rows),
        group_size=len(rows) // len(problems),
    )


def tokens_of(policy: CausalLMPolicy, text: str) -> list[int]:
    ids: Any = policy.tokenizer(text, add_special_tokens=False)["input_ids"]
    return list(ids)


def test_a_prefix_is_the_tokens_up_to_the_end_of_its_step(policy: CausalLMPolicy, problems: Sequence[Problem]) -> None:
    """Characters of several bytes before it; illegal steps have none; what ends the completion is not gone on from."""
    end = policy.eos_token_ids[0]
    texts = ["é1;漢22;", "1;2x;3;4", "1; \n", "no step", "1;2;"]
    rows = [[*tokens_of(policy, text), end] for text in texts[:-1]] + [tokens_of(policy, texts[-1])]
    found = step_prefixes(TASK, rollouts_of(policy, rows, problems[0]))
    table = spelling(policy)
    told = [[None if prefix is None else text_of(table, prefix.tokens) for prefix in row] for row in found]
    assert told == [["é1;", None], ["1;", "1;2x;3;"], [None], [], ["1;", None]]
    for prefix, row in ((found[0][0], rows[0]), (found[1][1], rows[1])):
        assert prefix is not None
        assert prefix.problem == problems[0].id
        assert list(prefix.tokens) == row[: len(prefix.tokens)]


def test_a_token_that_goes_on_beyond_the_step_belongs_to_its_prefix(
    policy: CausalLMPolicy, problems: Sequence[Problem]
) -> None:
    """Two steps that end within one token have the same prefix: what was drawn cannot be cut in between."""
    rollouts = rollouts_of(policy, [[7, 8, 9]], problems[0])
    spans = token_spans([b"1", b"2;34;5", b"6"], [0, 1, 2])
    (row,) = step_prefixes(TASK, replace(rollouts, texts=["12;34;56"], token_spans=[spans]))
    assert row == [Prefix(problems[0].id, (7, 8))] * 2


def test_a_prefix_that_rollouts_share_is_asked_about_once_in_order_of_writing() -> None:
    a, b, c = Prefix("p", (1,)), Prefix("p", (1, 2)), Prefix("q", (1,))
    assert distinct([[a, b], [None, a], [c, b, None], []]) == [a, b, c]


def test_prefix_and_continuation_are_one_text_even_where_a_character_is_cut(
    policy: CausalLMPolicy, problems: Sequence[Problem]
) -> None:
    ids = tokens_of(policy, "é;漢")
    cut = next(n for n in range(1, len(ids)) if "\udcc3" in text_of(spelling(policy), ids[:n]))
    asked = [Prefix(problems[0].id, tuple(ids[:cut])), Prefix(problems[1].id, ())]
    continued = rollouts_of(policy, [ids[cut:], [*ids[cut:], policy.eos_token_ids[0]], ids, []], *problems[:2])
    assert whole_texts(policy, asked, continued) == ["é;漢", "é;漢", "é;漢", ""]


@torch.no_grad()
def exact_success(policy: CausalLMPolicy, prefix: Prefix, problem: Problem) -> float:
    """Σ over all pairs of tokens that may follow of π(first) π(second | first) · correct, in two passes."""
    before = [*policy.prompt_ids(problem.prompt), *prefix.tokens]
    size = policy.model.config.vocab_size

    def following(rows: torch.Tensor) -> torch.Tensor:
        return (policy.model(rows).logits[:, -1].double() / SAMPLED.temperature).softmax(-1)

    bytes_of = torch.tensor([sum(piece) for piece in spelling(policy)])
    written = sum(bytes_of[token] for token in prefix.tokens)
    first = following(torch.tensor([before]))[0]
    second = following(torch.tensor([[*before, token] for token in range(size)]))
    second[list(policy.eos_token_ids)] = 0.0  # nothing follows an end token: it spells nothing, as itself a second time
    second[list(policy.eos_token_ids), policy.eos_token_ids[0]] = 1.0
    right = (written + bytes_of[:, None] + bytes_of) % 3 == 0
    return float((first[:, None] * second)[right].sum())


def test_values_are_those_of_an_enumeration(policy: CausalLMPolicy, problems: Sequence[Problem]) -> None:
    """A policy over 277 tokens with two left to write: 76,729 endings. Counts lie where binomial ones do in all but
    one of a hundred thousand cases."""
    draws = 600
    policy.model.eval()
    asked = [Prefix(problem.id, tuple(tokens_of(policy, "12;3"))[:4]) for problem in problems[:3]]
    assert all(len(prefix.tokens) == 4 for prefix in asked)
    rollouts = rollouts_of(policy, [[1]] * 3, *problems[:3])
    continued = Engine(max_batch_tokens=20_000).generate(
        policy,
        problems_of(asked, rollouts),
        group_size=draws,
        sampling=SAMPLED,
        seed=(0, "continuation", 0, 0),
        prefixes=[prefix.tokens for prefix in asked],
    )
    found = success_rates(TASK, policy, asked, continued)
    for prefix, problem in zip(asked, problems, strict=False):
        expected = exact_success(policy, prefix, problem)
        assert 0.1 < expected < 0.9
        low, high = binom.ppf([5e-6, 1 - 5e-6], draws, expected) / draws
        assert low <= found[prefix] <= high, (found[prefix], expected)
    policy.model.train()


class PartlyOut(Semicolons):
    """Its judge is out of order for what begins with ``b``, and after ``a`` where a ``!`` follows."""

    def verify(self, problem: Problem, completion: str) -> Verdict:
        if completion.startswith("b") or "!" in completion:
            return Verdict(status="error", reason="out of order")
        return Verdict(status="ok" if "1" in completion else "wrong", reason="")


def test_continuations_whose_judging_failed_are_not_held_to_be_wrong(
    policy: CausalLMPolicy, problems: Sequence[Problem]
) -> None:
    asked = [Prefix(problem.id, tuple(tokens_of(policy, text))) for problem, text in zip(problems, "ab", strict=False)]
    rows = [tokens_of(policy, text) for text in ("1", "2", "1!", "1", "1", "2", "1!", "1")]
    task: Any = PartlyOut()
    found = success_rates(task, policy, asked, rollouts_of(policy, rows, *problems[:2]))
    assert found == {asked[0]: 2 / 3, asked[1]: None}

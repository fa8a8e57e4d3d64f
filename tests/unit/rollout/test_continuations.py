"""Prefixes that end with a step, as tokens; their success rates against an enumeration of all continuations."""

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
from tests.rollout_batches import rollout_batch
from tests.tiny_tasks import PlainTask
from tests.unit.rollout.rollout_kit import Problems

SAMPLED = Sampling(temperature=0.9, top_k=None, top_p=1.0, max_tokens=6, stop=[])


class Semicolons(PlainTask):
    """A task whose steps end with ``;``. A step that contains an ``x`` is illegal."""

    def verify(self, problem: Problem, completion: str) -> Verdict:
        """About a third of all texts is correct: those whose bytes add up to a multiple of 3."""
        total = sum(completion.encode("utf-8", "surrogateescape"))
        return Verdict(status="wrong", reason="") if total % 3 else Verdict(status="ok", reason="")

    def parse_steps(self, problem: Problem, completion: str) -> list[Step]:
        ends = [index + 1 for index, character in enumerate(completion) if character == ";"]
        return [
            Step(start=start, end=end, state=completion[:end], legal="x" not in completion[start:end])
            for start, end in pairwise([0, *ends])
        ]


TASK: Any = Semicolons()


def rollouts_of(policy: CausalLMPolicy, rows: Sequence[Sequence[int]], *problems: Problem) -> RolloutBatch:
    """Completions of the given tokens."""
    table, width = spelling(policy), max(map(len, rows))
    ids = torch.tensor([[*row, *[policy.pad_token_id] * (width - len(row))] for row in rows])
    return rollout_batch(
        problems,
        torch.arange(width) < torch.tensor([len(row) for row in rows])[:, None],
        completion_ids=ids,
        texts=[text_of(table, row) for row in rows],
        token_spans=[token_spans(table, row) for row in rows],
    )


def tokens_of(policy: CausalLMPolicy, text: str) -> list[int]:
    ids: Any = policy.tokenizer(text, add_special_tokens=False)["input_ids"]
    return list(ids)


def test_step_prefixes_end_with_the_last_token_of_a_legal_step(policy: CausalLMPolicy, problems: Problems) -> None:
    """Characters may have several bytes. Illegal steps have no prefix; a step that ends the completion has None."""
    end = policy.eos_token_ids[0]
    texts = ["é1;漢22;", "1;2x;3;4", "1; \n", "no step", "1;2;"]
    rows = [[*tokens_of(policy, text), end] for text in texts[:-1]] + [tokens_of(policy, texts[-1])]
    found = step_prefixes(TASK, rollouts_of(policy, rows, problems[0]))
    table = spelling(policy)
    prefix_texts = [[None if prefix is None else text_of(table, prefix.tokens) for prefix in row] for row in found]
    assert prefix_texts == [["é1;", None], ["1;", "1;2x;3;"], [None], [], ["1;", None]]
    for prefix, row in ((found[0][0], rows[0]), (found[1][1], rows[1])):
        assert prefix is not None
        assert prefix.problem == problems[0].id
        assert list(prefix.tokens) == row[: len(prefix.tokens)]


def test_step_prefix_includes_a_token_that_crosses_the_step_end(policy: CausalLMPolicy, problems: Problems) -> None:
    """Two steps that end within one token have the same prefix, because a token cannot be split."""
    rollouts = rollouts_of(policy, [[7, 8, 9]], problems[0])
    spans = token_spans([b"1", b"2;34;5", b"6"], [0, 1, 2])
    (row,) = step_prefixes(TASK, replace(rollouts, texts=["12;34;56"], token_spans=[spans]))
    assert row == [Prefix(problems[0].id, (7, 8))] * 2


def test_distinct_prefixes_differ_in_problem_or_tokens() -> None:
    one, longer, other = Prefix("p", (1,)), Prefix("p", (1, 2)), Prefix("q", (1,))
    assert distinct([[one, longer], [None, one], [other, longer, None], []]) == [one, longer, other]


def test_whole_texts_restores_a_character_split_after_the_prefix(policy: CausalLMPolicy, problems: Problems) -> None:
    ids = tokens_of(policy, "é;漢")
    cut = next(n for n in range(1, len(ids)) if "\udcc3" in text_of(spelling(policy), ids[:n]))
    prefixes = [Prefix(problems[0].id, tuple(ids[:cut])), Prefix(problems[1].id, ())]
    continued = rollouts_of(policy, [ids[cut:], [*ids[cut:], policy.eos_token_ids[0]], ids, []], *problems[:2])
    assert whole_texts(policy, prefixes, continued) == ["é;漢", "é;漢", "é;漢", ""]


@torch.no_grad()
def exact_success(policy: CausalLMPolicy, prefix: Prefix, problem: Problem) -> float:
    """Σ π(first) π(second | first) · correct, over all pairs of next tokens, in two forward passes."""
    before = [*policy.prompt_ids(problem.prompt), *prefix.tokens]
    size = policy.model.config.vocab_size

    def next_token_probabilities(rows: torch.Tensor) -> torch.Tensor:
        return (policy.model(rows).logits[:, -1].double() / SAMPLED.temperature).softmax(-1)

    bytes_of = torch.tensor([sum(piece) for piece in spelling(policy)])
    prefix_sum = sum(bytes_of[token] for token in prefix.tokens)
    first = next_token_probabilities(torch.tensor([before]))[0]
    second = next_token_probabilities(torch.tensor([[*before, token] for token in range(size)]))
    second[list(policy.eos_token_ids)] = 0.0  # nothing follows an end token; a second one has no text
    second[list(policy.eos_token_ids), policy.eos_token_ids[0]] = 1.0
    correct = (prefix_sum + bytes_of[:, None] + bytes_of) % 3 == 0
    return float((first[:, None] * second)[correct].sum())


def test_success_rates_match_enumeration_of_all_continuations(policy: CausalLMPolicy, problems: Problems) -> None:
    """A binomial count lies outside the tested bounds in one of 100,000 cases."""
    draws = 600
    policy.model.eval()
    prefixes = [Prefix(problem.id, tuple(tokens_of(policy, "12;3"))[:4]) for problem in problems[:3]]
    assert all(len(prefix.tokens) == 4 for prefix in prefixes)
    rollouts = rollouts_of(policy, [[1]] * 3, *problems[:3])
    continued = Engine(max_batch_tokens=20_000).generate(
        policy,
        problems_of(prefixes, rollouts),
        group_size=draws,
        sampling=SAMPLED,
        seed=(0, "continuation", 0, 0),
        prefixes=[prefix.tokens for prefix in prefixes],
    )
    rates = success_rates(TASK, policy, prefixes, continued)
    for prefix, problem in zip(prefixes, problems, strict=False):
        expected = exact_success(policy, prefix, problem)
        assert 0.1 < expected < 0.9
        low, high = binom.ppf([5e-6, 1 - 5e-6], draws, expected) / draws
        assert low <= rates[prefix] <= high, (rates[prefix], expected)
    policy.model.train()


class FailingVerifier(Semicolons):
    """Its verifier fails for completions that begin with ``b`` or contain a ``!``."""

    def verify(self, problem: Problem, completion: str) -> Verdict:
        if completion.startswith("b") or "!" in completion:
            return Verdict(status="error", reason="out of order")
        return Verdict(status="ok" if "1" in completion else "wrong", reason="")


def test_success_rates_ignore_continuations_with_verifier_errors(policy: CausalLMPolicy, problems: Problems) -> None:
    prefixes = [
        Prefix(problem.id, tuple(tokens_of(policy, text))) for problem, text in zip(problems, "ab", strict=False)
    ]
    rows = [tokens_of(policy, text) for text in ("1", "2", "1!", "1", "1", "2", "1!", "1")]
    task: Any = FailingVerifier()
    rates = success_rates(task, policy, prefixes, rollouts_of(policy, rows, *problems[:2]))
    assert rates == {prefixes[0]: 2 / 3, prefixes[1]: None}

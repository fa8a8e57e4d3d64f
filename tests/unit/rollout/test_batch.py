"""``join_groups`` against generating the same problems in one call; verdicts and steps of a ``RolloutBatch``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.rollout import Engine, RolloutBatch, Sampling
from contrastive_reasoning.rollout.batch import Pick, join_groups, verdicts_of
from contrastive_reasoning.tasks.base import Problem, Step, Verdict
from tests.rollout_batches import rollout_batch
from tests.tiny_tasks import PlainTask
from tests.unit.rollout.rollout_kit import Problems

SAMPLING = Sampling(temperature=0.7, top_k=None, top_p=1.0, max_tokens=9, stop=[])


def generate_batch(policy: CausalLMPolicy, problems: Problems, *, pooled: bool, group_size: int = 3) -> RolloutBatch:
    engine = Engine(max_batch_tokens=10_000)
    return engine.generate(policy, problems, group_size=group_size, sampling=SAMPLING, seed=(0, "test"), pooled=pooled)


def join(policy: CausalLMPolicy, batches: Sequence[RolloutBatch], picks: Sequence[Pick]) -> RolloutBatch:
    return join_groups(batches, picks, pad_token_id=policy.pad_token_id)


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("picks", [[Pick(1, 1), Pick(0, 0), Pick(1, 0)], [Pick(0, 2)], [Pick(1, 1), Pick(0, 2)]])
def test_join_groups_equals_generating_the_problems_together(
    policy: CausalLMPolicy, problems: Problems, picks: list[Pick], pooled: bool
) -> None:
    """Prompts and completions differ in width; the result is as wide as the widest of the picked groups."""
    halves = [problems[:3], problems[3:]]
    joined = join(policy, [generate_batch(policy, half, pooled=pooled) for half in halves], picks)
    expected = generate_batch(policy, [halves[b][p] for b, p in picks], pooled=pooled)
    for name in ("prompt_ids", "prompt_mask", "completion_ids", "mask"):
        assert torch.equal(getattr(joined, name), getattr(expected, name)), name
    for name in ("problems", "texts", "token_spans", "finish_reasons", "group_size", "temperature"):
        assert getattr(joined, name) == getattr(expected, name), name
    assert_close(joined.old_log_probs, expected.old_log_probs)
    assert (joined.pooled is None) == (not pooled)
    if joined.pooled is not None and expected.pooled is not None:
        assert_close(joined.pooled, expected.pooled)
    assert [joined.problem_of(row) for row in range(len(joined))] == [halves[b][p] for b, p in picks for _ in range(3)]


def test_join_groups_rejects_empty_picks_and_incompatible_batches(policy: CausalLMPolicy, problems: Problems) -> None:
    three, two = (generate_batch(policy, problems[:1], pooled=False, group_size=size) for size in (3, 2))
    picks = [Pick(0, 0), Pick(1, 0)]
    for other, picked, named in (
        (three, [], "no groups"),
        (two, picks, "group_size.* 2, 3"),
        (replace(three, temperature=1.0), picks, r"temperature.* 0\.7, 1\.0"),
        (replace(three, pooled=torch.zeros(3, 4)), picks, "pooled"),
        (replace(three, prefix_values=[[0.5], [], [None]]), picks, "prefixes"),
    ):
        with pytest.raises(ValueError, match=named):
            join(policy, [three, other], picked)


def test_join_groups_keeps_prefix_values_with_their_rollouts(policy: CausalLMPolicy, problems: Problems) -> None:
    halves = [generate_batch(policy, half, pooled=False, group_size=2) for half in (problems[:2], problems[2:4])]
    valued = [
        replace(half, prefix_values=[[float(10 * b + row)] * row for row in range(4)]) for b, half in enumerate(halves)
    ]
    joined = join(policy, valued, [Pick(1, 1), Pick(0, 0)])
    assert joined.prefix_values == [[12.0] * 2, [13.0] * 3, [], [1.0]]


class Echo(PlainTask):
    """A completion is correct if it equals the gold answer."""

    def verify(self, problem: Problem, completion: str) -> Verdict:
        return Verdict(status="ok" if completion == problem.answer else "wrong", reason="")


class BatchVerifyingEcho(Echo):
    calls = parsed = 0

    def parse_steps(self, problem: Problem, completion: str) -> list[Step]:
        self.parsed += 1
        return [Step(start=0, end=1, state=problem.id, legal=True)]

    def verify_all(self, problems: Problems, completions: Sequence[str]) -> list[Verdict]:
        self.calls += 1
        return [super(BatchVerifyingEcho, self).verify(*pair) for pair in zip(problems, completions, strict=True)]

    def verify(self, problem: Problem, completion: str) -> Verdict:
        raise AssertionError("asked one by one")


def rollouts() -> RolloutBatch:
    problems = [Problem(id=str(n), prompt="Say it.", answer=str(n)) for n in range(2)]
    mask = torch.ones(4, 1, dtype=torch.bool)
    return rollout_batch(problems, mask, texts=["0", "1", "0", "1"], token_spans=[[(0, 1)]] * 4)


def test_verdicts_of_uses_the_problem_of_each_group_and_calls_verify_all_once() -> None:
    one_by_one, at_once = Echo(), BatchVerifyingEcho()
    assert [verdict.correct for verdict in verdicts_of(one_by_one, rollouts())] == [True, False, False, True]
    assert verdicts_of(at_once, rollouts()) == verdicts_of(one_by_one, rollouts())
    assert at_once.calls == 1


@pytest.mark.parametrize("change", [lambda found: found[1:], lambda found: dict(enumerate(found)), iter])
def test_other_results_of_verify_all_raise(change: Callable[[list[Verdict]], Any]) -> None:
    class Other(BatchVerifyingEcho):
        def verify_all(self, problems: Problems, completions: Sequence[str]) -> Any:
            return change(super().verify_all(problems, completions))

    with pytest.raises(ValueError, match=r"Other\.verify_all"):
        verdicts_of(Other(), rollouts())


def test_steps_by_caches_steps_per_task_until_texts_change() -> None:
    task, batch = BatchVerifyingEcho(), rollouts()
    assert batch.steps_by(task) is batch.steps_by(task)
    assert [row[0].state for row in batch.steps_by(task)] == ["0", "0", "1", "1"]
    assert batch.steps_by(Echo()) == [[]] * 4
    assert task.parsed == 4
    replace(batch, texts=["0"] * 4).steps_by(task)
    assert task.parsed == 8

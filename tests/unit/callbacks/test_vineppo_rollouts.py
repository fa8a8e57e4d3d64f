"""Values of steps by Monte Carlo continuations: which prefixes are continued, with which draws, and the token cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from callbacks.rollout_generation import VinePPORollouts
from contrastive_reasoning.advantages import MeanCentred, VinePPO
from contrastive_reasoning.rewards import MonteCarloReward, VerifierReward
from contrastive_reasoning.rewards.step_values import legal_steps
from contrastive_reasoning.rollout import Engine, RolloutBatch, Sampling
from contrastive_reasoning.rollout.requests import spelling
from contrastive_reasoning.rollout.spans import text_of
from contrastive_reasoning.tasks.base import Problem, Step, Verdict
from datamodules.reasoning_prompts import ProblemBatch
from lightning_modules.grpo import GRPO
from tests.unit.callbacks.test_dynamic_sampling import Module
from tests.unit.lightning_modules import grpo_kit as kit

POLICY = kit.policy()
PROBLEMS = kit.TASK.problems("train")[:4]
CONTINUATIONS = 3
SAMPLED = Sampling(temperature=0.9, top_k=None, top_p=1.0, max_tokens=12, stop=[])


class Letters:
    """A task in which a letter or digit ends a step, and a capital an illegal one. A third of all texts is correct."""

    name = "letters"

    def verify(self, problem: Problem, completion: str) -> Verdict:
        total = sum(completion.encode("utf-8", "surrogateescape"))
        return Verdict(status="wrong", reason="so it is") if total % 3 else Verdict(status="ok", reason="")

    def parse_steps(self, problem: Problem, completion: str) -> list[Step]:
        return [
            Step(start=index, end=index + 1, state=completion[: index + 1], legal=not character.isupper())
            for index, character in enumerate(completion)
            if character.isascii() and character.isalnum()
        ]

    def problems(self, split: str) -> Sequence[Problem]:
        return PROBLEMS

    def scores(self, problem: Problem, completion: str) -> dict[str, float]:
        return {}


TASK: Any = Letters()


class Recording(Engine):
    """An engine that records its rollouts and their settings."""

    def __init__(self, max_batch_tokens: int = 100_000) -> None:
        super().__init__(max_batch_tokens=max_batch_tokens)
        self.drawn: list[tuple[RolloutBatch, dict[str, Any]]] = []

    def generate(self, *arguments: Any, **settings: Any) -> RolloutBatch:
        rollouts = super().generate(*arguments, **settings)
        self.drawn.append((rollouts, settings))
        return rollouts


def callback(**changes: Any) -> VinePPORollouts:
    drawing: dict[str, Any] = {"sampling": SAMPLED, "greedy": replace(SAMPLED, temperature=0.0), "seed": 0}
    continued = {"engine": Recording(), "group_size": 5, "task": TASK, "continuations": CONTINUATIONS}
    return kit.generation(VinePPORollouts, **drawing | continued | changes)


def run_callback(
    problems: Sequence[Problem] = PROBLEMS, *, step: int = 0, **changes: Any
) -> tuple[RolloutBatch, Module, VinePPORollouts]:
    made, module, batch = callback(**changes), Module(step, policy=POLICY), ProblemBatch(problems)
    trainer: Any = SimpleNamespace()
    made.on_train_batch_start(trainer, module, batch, 0)
    assert batch.rollouts is not None
    module.logged["generated"] = batch.generated.projected
    return batch.rollouts, module, made


def recorded(made: VinePPORollouts) -> list[tuple[RolloutBatch, dict[str, Any]]]:
    assert isinstance(made.engine, Recording)
    return made.engine.drawn


def values_of(rollouts: RolloutBatch) -> Sequence[Sequence[float | None]]:
    assert rollouts.prefix_values is not None
    return rollouts.prefix_values


def test_legal_step_value_is_success_rate_of_its_continuations() -> None:
    """The expected value continues each prefix by itself and verifies each completion."""
    rollouts, _, _ = run_callback()
    table, values = spelling(POLICY), values_of(rollouts)
    steps = legal_steps(TASK, rollouts)
    assert [len(row) for row in values] == [len(row) for row in steps]
    found = 0
    for row, (legal, those) in enumerate(zip(steps, values, strict=True)):
        ids, problem = rollouts.completion_ids[row].tolist(), rollouts.problem_of(row)
        for step, value in zip(legal, those, strict=True):
            if value is None:
                assert not rollouts.texts[row][step.end :].strip()
                continue
            length = sum(start < step.end for start, _ in rollouts.token_spans[row])
            assert text_of(table, ids[:length]) == rollouts.texts[row][: step.end]
            alone = Engine(max_batch_tokens=10_000).generate(
                POLICY,
                [problem],
                group_size=CONTINUATIONS,
                sampling=SAMPLED,
                seed=(0, "continuation", 0),
                prefixes=[ids[:length]],
            )
            texts = [
                text_of(table, ids[:length] + alone.completion_ids[k][alone.mask[k]].tolist())
                for k in range(CONTINUATIONS)
            ]
            assert value == sum(TASK.verify(problem, text).correct for text in texts) / CONTINUATIONS
            found += 1
    assert found > 10
    assert len({value for row in values for value in row}) > 3


def test_each_prefix_is_continued_once_and_all_tokens_are_counted() -> None:
    """One problem is in the batch twice, so that some rollouts share a prefix."""
    rollouts, module, made = run_callback([PROBLEMS[0], PROBLEMS[1], PROBLEMS[0]], group_size=40)
    (first, plain), (continued, settings) = recorded(made)
    assert torch.equal(rollouts.completion_ids, first.completion_ids)
    assert plain.get("prefixes") is None
    prefixes = [
        (problem.id, tuple(prefix)) for problem, prefix in zip(continued.problems, settings["prefixes"], strict=True)
    ]
    assert len(set(prefixes)) == len(prefixes)
    assert len(prefixes) < sum(value is not None for row in values_of(rollouts) for value in row)
    assert continued.group_size == CONTINUATIONS
    tokens = int(continued.mask.sum())
    assert module.logged["train/rollout/prefixes"] == len(prefixes)
    assert module.logged["train/rollout/continuation_tokens"] == tokens > 0
    assert module.logged["generated"] == tokens + int(rollouts.mask.sum())


def test_values_do_not_depend_on_batch_order_or_token_budget() -> None:
    values = values_of(run_callback()[0])
    backwards = values_of(run_callback(PROBLEMS[::-1], engine=Recording(150))[0])
    groups = [values[5 * p : 5 * p + 5] for p in range(4)]
    assert backwards == [row for group in groups[::-1] for row in group]
    assert values_of(run_callback(PROBLEMS[2:3])[0]) == groups[2]


def test_draws_depend_only_on_seed_and_step() -> None:
    def draws(**changes: Any) -> list[list[int]]:
        torch.rand(3)  # the global generator must have no effect
        seed = recorded(run_callback(PROBLEMS[:1], **changes)[2])[1][1]["seed"]
        again = Engine(max_batch_tokens=10_000).generate(
            POLICY, PROBLEMS[:1], group_size=9, sampling=SAMPLED, seed=seed, prefixes=[[3, 4]]
        )
        return again.completion_ids.tolist()

    assert draws() == draws()
    others = [draws(seed=1), draws(step=1)]
    assert all(draws() != other for other in others)
    assert others[0] != others[1]


def test_completions_without_steps_get_no_continuations() -> None:
    silent: Any = Letters()
    silent.parse_steps = lambda *_: []
    rollouts, module, made = run_callback(task=silent)
    assert values_of(rollouts) == [[]] * len(rollouts)
    assert len(recorded(made)) == 1
    assert module.logged["train/rollout/continuation_tokens"] == 0
    assert module.logged["generated"] == int(rollouts.mask.sum())


def test_zero_continuations_raises() -> None:
    with pytest.raises(ValueError, match=r"rollout\.continuations.*0"):
        callback(continuations=0)


def test_resumed_run_equals_uninterrupted_run_bitwise(tmp_path: Path) -> None:
    def learner(seed: int) -> GRPO:
        reward = MonteCarloReward(outcome=VerifierReward(task=TASK), task=TASK, weight=0.0)
        advantage = VinePPO(outcome=MeanCentred(), weight=1.0)
        return kit.module(policy=kit.policy(seed=seed), task=TASK, reward=reward, advantage=advantage)

    _, metrics = kit.assert_resumes(learner, tmp_path, draws=callback)
    assert all(step["train/rollout/continuation_tokens"] > 0 for step in metrics.steps)
    assert {"train/reward/monte_carlo", "train/reward/verifier"} <= set(metrics.steps[0])

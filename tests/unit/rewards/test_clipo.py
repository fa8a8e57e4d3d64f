from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from contrastive_reasoning.losses import cosine, dot, info_nce, neg_unit_l2, supcon
from contrastive_reasoning.nonfinite import TooManySkipped
from contrastive_reasoning.rewards import Credit, VerifierReward, WeightedSum
from contrastive_reasoning.rewards.clipo import CLIPOReward, LinearHead, MLPHead
from contrastive_reasoning.rollout import RolloutBatch
from contrastive_reasoning.tasks.base import Verdict
from contrastive_reasoning.tasks.countdown import CountdownProblem

SETTINGS: dict[str, Any] = {
    "head": LinearHead(dimension=5, seed=0),
    "similarity": cosine,
    "level": "group",
    "formula": info_nce,
    "positives": "one",
    "temperature": 0.05,
    "weight": 0.2,
    "floor": -0.5,
    "self_in_denominator": False,
    "reference_epsilon": None,
    "learning_rate": 1e-3,
    "weight_decay": 0.01,
    "trainable": True,
    "warmup_steps": 0,
    "max_skipped_steps": 1,
    "seed": 0,
}
PATTERN = "1100 1111 0000 1000 0111"
"""Correct and wrong completions of five prompts; the first and the last group are valid."""

PROBLEM = CountdownProblem((21, 16, 17, 26), 46, style="direct")


class Marked:
    """Rewards rollouts by the pattern, independent of their texts; it fails on a row marked ``!``."""

    def __init__(self, pattern: str = PATTERN, right_plans: Sequence[bool] | None = None) -> None:
        marks = pattern.replace(" ", "")
        self.correct = [mark == "1" for mark in marks]
        self.failures = {row: Verdict(status="error", reason="!") for row, mark in enumerate(marks) if mark == "!"}
        self.fields = [{}] * len(marks) if right_plans is None else [{"right_plan": right} for right in right_plans]

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        outcome = torch.tensor([float(c) for c in self.correct])
        verdicts = [
            Verdict(status="ok" if c else "wrong", reason="" if c else "no", fields=fields)
            for c, fields in zip(self.correct, self.fields, strict=True)
        ]
        return Credit(outcome=outcome, parts={"verifier": outcome}, verdicts=verdicts, failures=self.failures)


def reward(**changes: Any) -> CLIPOReward:
    return CLIPOReward(**{"outcome": Marked(), **SETTINGS, **changes})


def rollouts(rollouts_of: Any, pattern: str = PATTERN, seed: int = 0) -> RolloutBatch:
    """Rollouts with the groups of the pattern, equal texts and random states."""
    groups = pattern.split(" ")
    count = len(pattern.replace(" ", ""))
    states = torch.randn(count, 7, generator=torch.Generator().manual_seed(seed))
    return replace(rollouts_of(["1+2=3"] * count, *[PROBLEM] * len(groups)), pooled=states)


@pytest.mark.parametrize("level", ["group", "cross", "batch"])
def test_completion_with_failed_verdict_is_in_no_comparison(rollouts_of: Any, level: str) -> None:
    """All is as in the batch without it. In one group all other completions are correct."""
    whole, remaining = "110! 1!11 !001 0!10", "110 111 001 010"
    settings: dict[str, Any] = {"level": level, "positives": "all", "formula": supcon, "temperature": 0.5}
    with_it = reward(outcome=Marked(whole), **settings)
    without = reward(outcome=Marked(remaining), **settings)
    batch = rollouts(rollouts_of, whole)
    assert batch.pooled is not None
    judged = torch.tensor([mark != "!" for mark in whole.replace(" ", "")])
    found = with_it(batch)
    expected = without(replace(rollouts(rollouts_of, remaining), pooled=batch.pooled[judged]))
    assert expected.parts["clipo"].any()
    assert_close(found.parts["clipo"][judged], expected.parts["clipo"])
    assert not found.parts["clipo"][~judged].any()
    assert found.metrics["clipo/loss"] == pytest.approx(expected.metrics["clipo/loss"], rel=1e-5)
    assert found.metrics["clipo/negative_cosine"] == pytest.approx(expected.metrics["clipo/negative_cosine"], rel=1e-4)
    assert with_it.g is not None
    assert without.g is not None
    for ours, theirs in zip(with_it.g.parameters(), without.g.parameters(), strict=True):
        assert_close(ours, theirs)


def test_info_nce_draws_one_positive_and_reaches_every_positive(rollouts_of: Any) -> None:
    batch = rollouts(rollouts_of)
    made = reward(temperature=0.5, floor=-100.0, trainable=False)
    seen = torch.stack([made(batch).parts["clipo"] for _ in range(12)])
    again = reward(temperature=0.5, floor=-100.0, trainable=False)
    assert_close(torch.stack([again(batch).parts["clipo"] for _ in range(12)]), seen, atol=0.0, rtol=0.0)
    values = [len(set(column.tolist())) for column in seen.T]
    assert values[:4] == [1, 1, 1, 1], "two correct: each has the other"
    assert values[-4:] == [1, 2, 2, 2], "three correct: one of two others"
    every = reward(temperature=0.5, floor=-100.0, trainable=False, formula=supcon, positives="all")
    assert_close(every(batch).parts["clipo"][0], seen[0, 0])


@pytest.mark.parametrize(
    ("level", "marks"),
    [
        ("group", "1100 0000 0000 0000 0111"),
        ("cross", "1100 1111 0000 0000 0111"),
        ("batch", "1100 1111 0000 1000 0111"),
    ],
)
def test_reward_shapes_only_correct_completions_with_positive_and_negative(
    rollouts_of: Any, level: str, marks: str
) -> None:
    part = reward(level=level)(rollouts(rollouts_of)).parts["clipo"]
    assert "".join("01"[bool(shaped)] for shaped in part) == marks.replace(" ", "")
    assert (part >= -0.5).all()


def test_reward_uses_loss_before_head_step_and_loss_decreases(rollouts_of: Any) -> None:
    batch = rollouts(rollouts_of)
    settings: dict[str, Any] = {"formula": supcon, "positives": "all", "learning_rate": 0.01}
    made, frozen = reward(**settings), reward(**settings, trainable=False)
    first = made(batch)
    assert_close(first.parts["clipo"], frozen(batch).parts["clipo"])
    losses = [first.metrics["clipo/loss"], *[made(batch).metrics["clipo/loss"] for _ in range(12)]]
    assert losses[-1] < 0.5 * losses[0]
    assert frozen(batch).metrics["clipo/loss"] == pytest.approx(losses[0])
    assert reward(trainable=False, warmup_steps=3).warmup_steps == 0


@pytest.mark.parametrize("pattern", ["0000 0000", "1111 1111", "1000 0001"])
def test_batch_without_valid_group_leaves_head_unchanged(rollouts_of: Any, pattern: str) -> None:
    made = reward(outcome=Marked(pattern))
    batch = rollouts(rollouts_of, pattern)
    made.embed(batch)
    assert made.g is not None
    before = next(made.g.parameters()).clone()
    credit = made(batch)
    assert_close(credit.outcome, credit.parts["verifier"], atol=0.0, rtol=0.0)
    assert torch.equal(next(made.g.parameters()), before)
    assert made.optimizer is not None
    assert not made.optimizer.state_dict()["state"]
    assert "clipo/loss" not in credit.metrics


@pytest.mark.parametrize(
    ("changes", "shapes"),
    [
        ({}, [(5, 7)]),
        ({"head": MLPHead(dimension=3, seed=1), "similarity": partial(neg_unit_l2, epsilon=1e-8)}, [(7, 7), (3, 7)]),
    ],
    ids=["linear", "mlp"],
)
def test_resumed_reward_is_bitwise_equal_to_uninterrupted(
    rollouts_of: Any, changes: dict[str, Any], shapes: list[tuple[int, int]]
) -> None:
    batches = [rollouts(rollouts_of, seed=seed) for seed in range(4)]
    whole, stopped, resumed = (reward(**changes) for _ in range(3))
    expected_credits = [whole(batch).outcome for batch in batches]
    for batch in batches[:2]:
        stopped(batch)
    resumed.load_state_dict(stopped.state_dict())
    found = [resumed(batch).outcome for batch in batches[2:]]
    assert all(torch.equal(a, b) for a, b in zip(found, expected_credits[2:], strict=True))
    assert resumed.g is not None
    assert [tuple(weight.shape) for weight in resumed.g.parameters()] == shapes
    assert all(weight.isfinite().all() for weight in resumed.g.parameters())


def test_logged_metrics_match_definitions(rollouts_of: Any) -> None:
    metrics = reward(formula=supcon, positives="all", similarity=dot)(rollouts(rollouts_of)).metrics
    assert metrics["clipo/mutual_information_bound"] == pytest.approx(math.log(4) - metrics["clipo/loss"])
    assert metrics["clipo/alignment"] == pytest.approx(2 - 2 * metrics["clipo/positive_cosine"])
    assert -1 <= metrics["clipo/negative_cosine"] <= 1
    assert 1 <= metrics["clipo/effective_rank"] <= 5
    assert metrics["clipo/uniformity"] < 0
    assert metrics["clipo/reward_of_correct"] < 0


def test_spread_replaces_weight_and_floor_by_a_centred_bonus(rollouts_of: Any) -> None:
    batch = rollouts(rollouts_of)
    settings: dict[str, Any] = {"trainable": False, "positives": "all", "formula": supcon}
    plain = reward(floor=-1000.0, weight=1.0, **settings)(batch).parts["clipo"]
    credit = reward(spread=0.3, **settings)(batch)
    anchors = plain != 0
    assert (credit.parts["clipo"] != 0).equal(anchors)
    for first in (0, 16):  # the valid groups
        rows = torch.arange(first, first + 4)[anchors[first : first + 4]]
        apart = plain[rows] - plain[rows].mean()
        assert_close(credit.parts["clipo"][rows], 0.3 * apart / apart.square().mean().sqrt())
    assert credit.metrics["clipo/bonus_spread"] == pytest.approx(0.3)
    unscaled = reward(**settings)(batch)
    spreads = [unscaled.parts["clipo"][rows].std(correction=0).item() for rows in (slice(0, 2), slice(17, 20))]
    assert unscaled.metrics["clipo/bonus_spread"] == pytest.approx(sum(spreads) / 2)


def test_auroc_of_right_plans_counts_pairs_of_correct_completions_in_a_group(rollouts_of: Any) -> None:
    outcome = Marked(right_plans=[row in (0, 17, 19) for row in range(20)])
    credit = reward(outcome=outcome, floor=-1000.0, trainable=False)(rollouts(rollouts_of))
    bonus = credit.parts["clipo"]
    pairs = [(0, 1), (17, 18), (19, 18)]
    won = [float(bonus[right] > bonus[wrong]) + 0.5 * float(bonus[right] == bonus[wrong]) for right, wrong in pairs]
    assert credit.metrics["clipo/right_plan_auroc"] == pytest.approx(sum(won) / 3)
    assert "clipo/right_plan_auroc" not in reward()(rollouts(rollouts_of)).metrics


def test_missing_pooled_states_or_verdicts_raise(rollouts_of: Any) -> None:
    batch, nothing = rollouts(rollouts_of), torch.zeros(20)
    with pytest.raises(RuntimeError, match="pooled"):
        reward()(replace(batch, pooled=None))
    with pytest.raises(ValueError, match="silence"):
        reward(outcome=lambda rollouts: Credit(outcome=nothing, parts={"silence": nothing}))(batch)


def test_reward_that_learns_must_be_outermost(task: Any) -> None:
    with pytest.raises(ValueError, match="CLIPOReward"):
        reward(outcome=reward())
    with pytest.raises(ValueError, match=r"CLIPOReward.*WeightedSum"):
        WeightedSum(rewards={"a": reward(), "b": VerifierReward(task=task)}, weights={"a": 1.0, "b": 1.0})


@pytest.mark.parametrize(
    ("name", "value"),
    [("temperature", 0.0), ("level", "x"), ("positives", "x"), ("reference_epsilon", 0.0), ("max_skipped_steps", -1)],
)
def test_invalid_settings_raise(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name}.*{value}"):
        reward(**{name: value})


BAD = 2
"""The call in which a number is corrupted."""
NAN, INFINITE = float("nan"), float("inf")


class BadLoss:
    """Adds NaN to every anchor's loss in one call, so that the gradient stays finite."""

    calls = 0

    def __call__(self, *parts: Any) -> Tensor:
        self.calls += 1
        return supcon(*parts) + (NAN if self.calls == BAD else 0.0)


class BadOutcome(Marked):
    """Sets one wrong completion's reward to NaN in one call; no anchor's loss depends on it."""

    calls = 0

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        self.calls += 1
        credit = super().__call__(rollouts)
        if self.calls == BAD:
            credit.outcome[2] = NAN
        return credit


def bad_loss(**changes: Any) -> CLIPOReward:
    return reward(formula=BadLoss(), positives="all", **changes)


def bad_gradient() -> CLIPOReward:
    made = reward(formula=supcon, positives="all")
    made.project(torch.ones(1, 7))

    def corrupt(gradient: Tensor) -> Tensor:
        return gradient.index_fill(0, torch.tensor(0), INFINITE) if made.calls + 1 == BAD else gradient

    assert made.g is not None
    next(made.g.parameters()).register_hook(corrupt)
    return made


def bad_outcome() -> CLIPOReward:
    return reward(outcome=BadOutcome(), formula=supcon, positives="all")


def head_and_moments(made: CLIPOReward) -> list[Tensor]:
    """Returns copies of the head's weights and of its optimizer's first moments."""
    assert made.g is not None
    assert made.optimizer is not None
    states = made.optimizer.state_dict()["state"].values()
    return [part.detach().clone() for part in (*made.g.parameters(), *(state["exp_avg"] for state in states))]


def bitwise_equal(first: list[Tensor], second: list[Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


@pytest.mark.parametrize("made", [bad_loss, bad_gradient, bad_outcome])
def test_non_finite_head_step_is_skipped_and_counted(rollouts_of: Any, made: Callable[[], CLIPOReward]) -> None:
    shaped, batch = made(), rollouts(rollouts_of)
    found, after = [], []
    for _ in range(3):
        found.append(shaped(batch))
        after.append(head_and_moments(shaped))
    assert bitwise_equal(after[1], after[0])
    assert not bitwise_equal(after[2], after[1]), "and then it goes on"
    assert [credit.metrics["clipo/skipped_steps"] for credit in found] == [0, 1, 1]
    resumed = reward(formula=supcon, positives="all")
    resumed.load_state_dict(shaped.state_dict())
    assert resumed(batch).metrics["clipo/skipped_steps"] == 1
    assert all(math.isfinite(value) for credit in found for value in credit.metrics.values())
    assert found[2].outcome.isfinite().all()


def test_head_step_with_non_finite_embeddings_is_skipped(rollouts_of: Any) -> None:
    shaped, batch = reward(formula=supcon, positives="all"), rollouts(rollouts_of)
    shaped(batch)
    before = head_and_moments(shaped)
    assert batch.pooled is not None
    credit = shaped(replace(batch, pooled=batch.pooled.sign() * 3e38))
    assert not credit.outcome.isfinite().all(), "who asked for it sees that the batch is to be left out"
    assert bitwise_equal(head_and_moments(shaped), before)
    assert credit.metrics["clipo/skipped_steps"] == 1


def test_skipped_step_above_limit_raises(rollouts_of: Any) -> None:
    stopped, batch = bad_loss(max_skipped_steps=0), rollouts(rollouts_of)
    stopped(batch)
    before = head_and_moments(stopped)
    with pytest.raises(TooManySkipped, match=r"^loss .* 0 steps of CLIPO"):
        stopped(batch)
    assert bitwise_equal(head_and_moments(stopped), before)

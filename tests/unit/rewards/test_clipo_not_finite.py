"""A number that is not finite reaches CLIPO's reward: the head's step is left out, and the next one is taken."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from contrastive_reasoning.distributed import TooManyLeftOut
from contrastive_reasoning.losses import supcon
from contrastive_reasoning.rewards import Credit
from contrastive_reasoning.rewards.clipo import CLIPOReward
from contrastive_reasoning.rollout import RolloutBatch
from tests.unit.rewards.test_clipo import Marked, reward, rollouts

BAD = 2
"""The call in which something is spoiled."""
NAN, INFINITE = float("nan"), float("inf")


class BadLoss:
    """Adds to every anchor's loss, so that the gradient is sound."""

    def __init__(self, bad: float) -> None:
        self.bad = bad
        self.calls = 0

    def __call__(self, *parts: Any) -> Tensor:
        self.calls += 1
        return supcon(*parts) + (self.bad if self.calls == BAD else 0.0)


class BadOutcome(Marked):
    """One wrong completion's reward; no anchor's loss knows of it."""

    calls = 0

    def __call__(self, batch: RolloutBatch) -> Credit:
        self.calls += 1
        credit = super().__call__(batch)
        if self.calls == BAD:
            credit.outcome[2] = NAN
        return credit


def bad_loss(bad: float) -> CLIPOReward:
    return reward(formula=BadLoss(bad), positives="all")


def bad_gradient(bad: float) -> CLIPOReward:
    made = reward(formula=supcon, positives="all")
    made.project(torch.ones(1, 7))

    def spoiled(gradient: Tensor) -> Tensor:
        return gradient.index_fill(0, torch.tensor(0), bad) if made.calls + 1 == BAD else gradient

    assert made.head is not None
    next(made.head.parameters()).register_hook(spoiled)
    return made


def bad_outcome(bad: float) -> CLIPOReward:
    return reward(outcome=BadOutcome(), formula=supcon, positives="all")


def learned(made: CLIPOReward) -> list[Tensor]:
    """The head, and what its optimizer remembers."""
    assert made.head is not None
    assert made.optimizer is not None
    states = made.optimizer.state_dict()["state"].values()
    return [part.detach().clone() for part in (*made.head.parameters(), *(state["exp_avg"] for state in states))]


def same(first: list[Tensor], second: list[Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


@pytest.mark.parametrize(
    ("made", "bad"),
    [(bad_loss, NAN), (bad_loss, INFINITE), (bad_gradient, NAN), (bad_gradient, INFINITE), (bad_outcome, NAN)],
)
def test_the_heads_step_is_left_out_and_counted(
    rollouts_of: Any, made: Callable[[float], CLIPOReward], bad: float
) -> None:
    shaped, batch = made(bad), rollouts(rollouts_of)
    found, after = [], []
    for _ in range(3):
        found.append(shaped(batch))
        after.append(learned(shaped))
    assert same(after[1], after[0]), "bit for bit as before"
    assert not same(after[2], after[1]), "and then it goes on"
    assert [credit.metrics["clipo/skipped_steps"] for credit in found] == [0, 1, 1]
    assert all(math.isfinite(value) for credit in found for value in credit.metrics.values())
    assert found[2].outcome.isfinite().all()


def test_states_whose_embeddings_are_no_numbers_are_left_out(rollouts_of: Any) -> None:
    shaped, batch = reward(formula=supcon, positives="all"), rollouts(rollouts_of)
    shaped(batch)
    before = learned(shaped)
    assert batch.pooled is not None
    credit = shaped(replace(batch, pooled=batch.pooled.sign() * 3e38))
    assert not credit.outcome.isfinite().all(), "who asked for it sees that the batch is to be left out"
    assert same(learned(shaped), before)
    assert credit.metrics["clipo/skipped_steps"] == 1


def test_what_was_left_out_is_still_counted_after_a_resume(rollouts_of: Any) -> None:
    stopped, batch = bad_loss(NAN), rollouts(rollouts_of)
    for _ in range(BAD):
        stopped(batch)
    resumed = reward(formula=supcon, positives="all")
    resumed.load_state_dict(stopped.state_dict())
    assert resumed(batch).metrics["clipo/skipped_steps"] == 1


def test_one_more_than_the_limit_ends_it(rollouts_of: Any) -> None:
    made, batch = bad_loss(NAN), rollouts(rollouts_of)
    stopped = reward(formula=BadLoss(NAN), positives="all", max_skipped_steps=0)
    for _ in range(BAD - 1):
        made(batch)
        stopped(batch)
    made(batch)
    before = learned(stopped)
    with pytest.raises(TooManyLeftOut, match=r"^loss is not finite in a step of CLIPO's head, and 0 of its steps "):
        stopped(batch)
    assert same(learned(stopped), before)


@pytest.mark.parametrize(
    ("made", "named"), [(bad_gradient, "gradient, or a number on another rank,"), (bad_outcome, "reward")]
)
def test_the_number_that_is_none_is_named(rollouts_of: Any, made: Callable[[float], CLIPOReward], named: str) -> None:
    stopped, batch = made(NAN), rollouts(rollouts_of)
    stopped.skipped.most = 0
    stopped(batch)
    with pytest.raises(TooManyLeftOut, match=rf"^{named} is not finite in a step of CLIPO's head"):
        stopped(batch)

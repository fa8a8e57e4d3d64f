from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from torch.testing import assert_close

import conf
from contrastive_reasoning.advantages import (
    Advantage,
    GroupRelative,
    GRPOLambda,
    LeaveOneOut,
    MeanCentred,
    Potential,
    Process,
    Subsampled,
    Survival,
    TrustGate,
    VinePPO,
)
from contrastive_reasoning.rewards import Credit, StepCredit
from contrastive_reasoning.tasks.base import Verdict

ALL: list[Advantage] = [
    GroupRelative(normalise_std=True, epsilon=1e-6),
    GroupRelative(normalise_std=False, epsilon=0.0),
    MeanCentred(),
    LeaveOneOut(),
]


def credit(rewards: list[float]) -> Credit:
    return Credit(outcome=torch.tensor(rewards, dtype=torch.float64), parts={})


def one_token(rows: int) -> torch.Tensor:
    return torch.ones(rows, 1, dtype=torch.bool)


def test_leave_one_out_subtracts_mean_of_other_rewards() -> None:
    assert_close(LeaveOneOut()(credit([1.0, 0.0]), one_token(2), 2)[:, 0], torch.tensor([1.0, -1.0]).double())
    rewards = [0.1, 0.7, 0.4]
    got = LeaveOneOut()(credit(rewards), one_token(3), 3)[:, 0].tolist()
    assert got == pytest.approx([r - mean(rewards[:i] + rewards[i + 1 :]) for i, r in enumerate(rewards)])


@pytest.mark.parametrize("advantage", ALL)
@pytest.mark.parametrize("reward", [0.0, 1.0, 0.1, -0.3, 1e-9])
def test_equal_rewards_have_exactly_zero_advantage(advantage: Advantage, reward: float) -> None:
    """The mean of equal 0.1s is rounded, and a division by a tiny spread would amplify the rounding error."""
    got = advantage(credit([reward] * 7), one_token(7), 7)
    assert torch.equal(got, torch.zeros_like(got))


@pytest.mark.parametrize("advantage", ALL)
def test_masked_tokens_have_zero_advantage_and_others_are_equal(advantage: Advantage) -> None:
    mask = torch.tensor([[True, True, False], [True, False, False]])
    got = advantage(credit([1.0, 0.0]), mask, 2)
    assert torch.equal(got != 0, mask)
    assert got[0, 0] == got[0, 1]


@pytest.mark.parametrize("advantage", ALL)
def test_group_of_one_or_incomplete_group_raises(advantage: Advantage) -> None:
    for rewards, size, named in ([1.0, 0.0], 1, "group_size.*1"), ([1.0] * 5, 2, "5 .*2"):
        with pytest.raises(ValueError, match=named):
            advantage(credit(rewards), one_token(len(rewards)), size)


OUTCOME = GroupRelative(normalise_std=True, epsilon=1e-6)
FAILED = Verdict(status="timeout", reason="no reply within 2 s")
EVERY_ADVANTAGE: list[Advantage] = [
    OUTCOME,
    MeanCentred(),
    LeaveOneOut(),
    GRPOLambda(outcome=OUTCOME, decay=0.5, floor=-0.1),
    Process(outcome=OUTCOME, weight=1.0, epsilon=1e-6),
    Potential(outcome=OUTCOME, weight=0.5, decay=0.5, scale=3.0),
    Survival(outcome=OUTCOME, weight=1.0, epsilon=1e-6),
    VinePPO(outcome=OUTCOME, weight=1.0),
    Subsampled(advantage=OUTCOME, share=1.0, seed=0),
    TrustGate(
        advantage=Process(outcome=OUTCOME, weight=1.0, epsilon=1e-6), window=1, floor=0.0, span=1.0, total_steps=9
    ),
]
"""One of each kind that a configuration can name; a test checks that none is missing."""
OUTCOMES = [1.0, 0.0, 0.3, 0.7]
VALUES = [[0.9, 0.4], [0.2, 0.6], [0.5, 0.1], [0.3, 0.8]]
TOKENS = 6
"""The number of tokens of every rollout: two steps of two tokens each, and two tokens after them."""


def test_every_configured_advantage_is_tested() -> None:
    files = sorted((Path(conf.__path__[0]) / "advantage").glob("*.yaml"))
    nodes: list[Any] = [OmegaConf.load(file) for file in files]
    named = {node["_target_"] for node in nodes if "_target_" in node}
    assert {name.rpartition(".")[2] for name in named} == {type(advantage).__name__ for advantage in EVERY_ADVANTAGE}


def credit_of(rows: list[int], failures: list[int]) -> Credit:
    """Returns the credit of these rollouts of the four above."""
    steps = [[StepCredit(2 * k, 2 * k + 1, VALUES[row][k], depth=3 - k) for k in range(2)] for row in rows]
    outcome = torch.tensor([OUTCOMES[row] for row in rows], dtype=torch.float64)
    return Credit(
        outcome=outcome,
        parts={"function": outcome},
        steps=steps,
        starts=[0.5] * len(rows),
        verdicts=[Verdict(status="wrong", reason="") for _ in rows],
        failures=dict.fromkeys(failures, FAILED),
        metrics={"steps/auroc_siblings": 0.9},
    )


def advantage_of(advantage: Advantage, credit_of: Credit, group_size: int) -> torch.Tensor:
    return advantage(credit_of, torch.ones(len(credit_of.outcome), TOKENS, dtype=torch.bool), group_size)


@pytest.mark.parametrize("advantage", EVERY_ADVANTAGE, ids=lambda advantage: type(advantage).__name__)
def test_failed_rollout_has_zero_advantage_and_others_form_smaller_group(advantage: Advantage) -> None:
    if isinstance(advantage, TrustGate):
        advantage_of(advantage, credit_of([0, 1, 2, 3], []), 4)  # the gate trusts from the next call on
    failed = credit_of([0, 1, 2, 3], [2])
    failed.outcome[2] = float("nan")  # never read
    got = advantage_of(advantage, failed, 4)
    assert torch.equal(got[2], torch.zeros(TOKENS, dtype=got.dtype))
    assert bool(got[[0, 1, 3]].any(dim=1).all()), "the others teach"
    if isinstance(advantage, TrustGate):
        advantage.calls -= 1
    expected = advantage_of(advantage, credit_of([0, 1, 3], []), 3)
    torch.testing.assert_close(got[[0, 1, 3]], expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("advantage", EVERY_ADVANTAGE[:4], ids=lambda advantage: type(advantage).__name__)
@pytest.mark.parametrize("failures", [[0, 1, 2], [0, 1, 2, 3]])
def test_fewer_than_two_rewarded_rollouts_have_zero_advantage(advantage: Advantage, failures: list[int]) -> None:
    assert not advantage_of(advantage, credit_of([0, 1, 2, 3], failures), 4).any()


MIXED: list[Callable[[Advantage, float], Advantage]] = [
    lambda outcome, weight: Process(outcome=outcome, weight=weight, epsilon=1e-6),
    lambda outcome, weight: Potential(outcome=outcome, weight=weight, decay=0.95, scale=2.0),
    lambda outcome, weight: Survival(outcome=outcome, weight=weight, epsilon=1e-6),
    lambda outcome, weight: VinePPO(outcome=outcome, weight=weight),
    lambda outcome, weight: GRPOLambda(outcome=outcome, decay=weight, floor=None),
]


@pytest.mark.parametrize("outcome", [OUTCOME, MeanCentred()])
@pytest.mark.parametrize("mixed", MIXED)
def test_weight_zero_is_bitwise_equal_to_outcome(
    mixed: Callable[[Advantage, float], Advantage], outcome: Advantage
) -> None:
    full_credit = credit_of([0, 1, 2, 3], [])
    assert torch.equal(advantage_of(mixed(outcome, 0.0), full_credit, 4), advantage_of(outcome, full_credit, 4))
    assert not torch.equal(advantage_of(mixed(outcome, 0.5), full_credit, 4), advantage_of(outcome, full_credit, 4))


@pytest.mark.parametrize(("mixed", "missing"), [(MIXED[0], "steps"), *product(MIXED[1:4], ("steps", "starts"))])
def test_missing_step_values_raise_with_reward_name(mixed: Callable[..., Advantage], missing: Any) -> None:
    with pytest.raises(ValueError, match=r"steps.*: function$"):
        advantage_of(mixed(OUTCOME, 0.5), replace(credit_of([0, 1], []), **{missing: None}), 2)

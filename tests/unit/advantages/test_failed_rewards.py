"""A rollout that the reward failed on, in every advantage: it teaches nothing and its group is one smaller."""

from __future__ import annotations

import pytest
import torch

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

OUTCOME = GroupRelative(normalise_std=True, epsilon=1e-6)
FAILED = Verdict(status="timeout", reason="no reply within 2 s")
ALL: list[Advantage] = [
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
FORGETFUL = ALL[:8]
"""Those that give the same for the same, however often they are asked."""
OUTCOMES = [1.0, 0.0, 0.3, 0.7]
VALUES = [[0.9, 0.4], [0.2, 0.6], [0.5, 0.1], [0.3, 0.8]]
TOKENS = 6
"""Of every rollout: two steps of two tokens, and two tokens after them."""


def credit(rows: list[int], failures: list[int]) -> Credit:
    """Credit of these rollouts of the four above."""
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


def of(advantage: Advantage, credit: Credit, group_size: int) -> torch.Tensor:
    return advantage(credit, torch.ones(len(credit.outcome), TOKENS, dtype=torch.bool), group_size)


@pytest.mark.parametrize("advantage", ALL, ids=lambda advantage: type(advantage).__name__)
def test_a_failed_rollout_has_exactly_no_advantage_and_the_others_that_of_a_smaller_group(advantage: Advantage) -> None:
    if isinstance(advantage, TrustGate):
        of(advantage, credit([0, 1, 2, 3], []), 4)  # from here on it trusts
    got = of(advantage, credit([0, 1, 2, 3], [2]), 4)
    assert torch.equal(got[2], torch.zeros(TOKENS, dtype=got.dtype))
    assert bool(got[[0, 1, 3]].any(dim=1).all()), "the others teach"
    if isinstance(advantage, TrustGate):
        advantage.calls -= 1
    expected = of(advantage, credit([0, 1, 3], []), 3)
    torch.testing.assert_close(got[[0, 1, 3]], expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("advantage", ALL[:4], ids=lambda advantage: type(advantage).__name__)
@pytest.mark.parametrize("failures", [[0, 1, 2], [0, 1, 2, 3]])
def test_where_fewer_than_two_were_rewarded_there_is_no_one_to_compare_with(
    advantage: Advantage, failures: list[int]
) -> None:
    assert not of(advantage, credit([0, 1, 2, 3], failures), 4).any()


@pytest.mark.parametrize("advantage", FORGETFUL, ids=lambda advantage: type(advantage).__name__)
def test_what_stands_in_the_outcome_of_a_failed_rollout_is_never_read(advantage: Advantage) -> None:
    one = credit([0, 1, 2, 3], [2])
    other = credit([0, 1, 2, 3], [2])
    other.outcome[2] = float("nan")
    assert torch.equal(of(advantage, one, 4), of(advantage, other, 4))


def test_other_groups_do_not_notice() -> None:
    both = credit([0, 1, 2, 3, 0, 1, 2, 3], [1])
    assert torch.equal(of(OUTCOME, both, 4)[4:], of(OUTCOME, credit([0, 1, 2, 3], []), 4))

from __future__ import annotations

from statistics import mean, stdev

import pytest
import torch
from torch.testing import assert_close

from contrastive_reasoning.advantages import Advantage, GroupRelative, LeaveOneOut, MeanCentred
from contrastive_reasoning.rewards import Credit

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


def test_group_relative_by_loops() -> None:
    rewards = torch.rand(12, generator=torch.Generator().manual_seed(0)).tolist()
    got = GroupRelative(normalise_std=True, epsilon=1e-6)(credit(rewards), one_token(12), 4)[:, 0]
    for i, reward in enumerate(rewards):
        group = rewards[i // 4 * 4 : i // 4 * 4 + 4]
        assert got[i].item() == pytest.approx((reward - mean(group)) / (stdev(group) + 1e-6), abs=1e-6)


def test_leave_one_out() -> None:
    assert_close(LeaveOneOut()(credit([1.0, 0.0]), one_token(2), 2)[:, 0], torch.tensor([1.0, -1.0]).double())
    rewards = [0.1, 0.7, 0.4]
    got = LeaveOneOut()(credit(rewards), one_token(3), 3)[:, 0].tolist()
    assert got == pytest.approx([r - mean(rewards[:i] + rewards[i + 1 :]) for i, r in enumerate(rewards)])


def test_mean_centred() -> None:
    got = MeanCentred()(credit([1.0, 0.0, 0.0, 1.0, 1.0, 1.0]), one_token(6), 3)[:, 0]
    assert_close(got, torch.tensor([2 / 3, -1 / 3, -1 / 3, 0, 0, 0]).double())


@pytest.mark.parametrize("advantage", ALL)
@pytest.mark.parametrize("reward", [0.0, 1.0, 0.1, -0.3, 1e-9])
def test_equal_rewards_teach_exactly_nothing(advantage: Advantage, reward: float) -> None:
    """Not even the rounding of a mean of 0.1s, which a division by a tiny spread would blow up."""
    got = advantage(credit([reward] * 7), one_token(7), 7)
    assert torch.equal(got, torch.zeros_like(got))


@pytest.mark.parametrize("advantage", ALL)
def test_masked_tokens_get_nothing_and_others_the_same(advantage: Advantage) -> None:
    mask = torch.tensor([[True, True, False], [True, False, False]])
    got = advantage(credit([1.0, 0.0]), mask, 2)
    assert torch.equal(got != 0, mask)
    assert got[0, 0] == got[0, 1]


@pytest.mark.parametrize("advantage", ALL)
def test_a_group_needs_two(advantage: Advantage) -> None:
    with pytest.raises(ValueError, match=r"group_size must be at least 2 .* got 1"):
        advantage(credit([1.0, 0.0]), one_token(2), 1)


@pytest.mark.parametrize("advantage", ALL)
def test_only_whole_groups(advantage: Advantage) -> None:
    with pytest.raises(ValueError, match="5 rollouts are not whole groups of 2"):
        advantage(credit([1.0] * 5), one_token(5), 2)


def test_negative_epsilon_is_refused() -> None:
    with pytest.raises(ValueError, match="epsilon must not be negative, got -1"):
        GroupRelative(normalise_std=True, epsilon=-1.0)

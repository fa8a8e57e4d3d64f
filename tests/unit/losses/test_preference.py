"""The two terms of the goal-conditioned reward model, by hand."""

from __future__ import annotations

import math

import pytest
import torch

from contrastive_reasoning.losses import goal_contrast, preference_loss


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def test_preference_loss_matches_formula() -> None:
    loss = preference_loss(torch.tensor([2.0, -1.0]).double(), torch.tensor([0.5, 3.0]).double())
    assert loss.tolist() == pytest.approx([-math.log(sigmoid(1.5)), -math.log(sigmoid(-4.0))])


def test_goal_contrast_matches_formula() -> None:
    loss = goal_contrast(torch.tensor([0.9, -0.2]).double(), torch.tensor([0.1, 0.8]).double())
    expected = [-(math.log(sigmoid(a)) + math.log(1 - sigmoid(b))) for a, b in ((0.9, 0.1), (-0.2, 0.8))]
    assert loss.tolist() == pytest.approx(expected)


def test_equal_rewards_cost_log_two_and_huge_rewards_stay_finite() -> None:
    assert preference_loss(torch.zeros(1), torch.zeros(1)).item() == pytest.approx(math.log(2))
    huge = torch.tensor([1e30], requires_grad=True)
    loss = (preference_loss(-huge, huge) + goal_contrast(-huge, huge)).sum()
    loss.backward()
    assert loss.isfinite()
    assert huge.grad is not None
    assert huge.grad.isfinite().all()

"""The loss against the formula, token by token."""

import math

import torch

from contrastive_reasoning.objectives import ObjectiveInputs, TokenMean
from contrastive_reasoning.objectives.unclipped import Unclipped


def test_loss_is_the_mean_of_ratio_times_advantage() -> None:
    new, old, advantages = [-1.0, -2.0, -0.5], [-1.5, -2.0, -0.25], [1.0, -1.0, 2.0]
    inputs = ObjectiveInputs(
        log_probs=torch.tensor([new]),
        old_log_probs=torch.tensor([old]),
        ref_log_probs=None,
        advantages=torch.tensor([advantages]),
        mask=torch.ones(1, 3, dtype=torch.bool),
    )
    expected = sum(-math.exp(a - b) * c for a, b, c in zip(new, old, advantages, strict=True)) / 3
    loss = Unclipped(kl_weight=0.0, kl=None, aggregation=TokenMean())(inputs).loss
    torch.testing.assert_close(loss, torch.tensor(expected))

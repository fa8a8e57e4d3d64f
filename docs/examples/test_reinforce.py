"""The gradient against the formula, token by token."""

import torch

from contrastive_reasoning.objectives import ObjectiveInputs, TokenMean
from docs.examples.reinforce import Reinforce


def test_the_gradient_of_each_token_is_its_advantage_over_the_tokens() -> None:
    log_probs = torch.tensor([[-1.0, -2.0], [-0.5, -3.0]], requires_grad=True)
    advantages = torch.tensor([[1.0, 1.0], [-2.0, -2.0]])
    mask = torch.tensor([[True, True], [True, False]])
    inputs = ObjectiveInputs(
        log_probs=log_probs, old_log_probs=log_probs.detach(), ref_log_probs=None, advantages=advantages, mask=mask
    )
    Reinforce(aggregation=TokenMean())(inputs).loss.backward()
    assert log_probs.grad is not None
    for row, token in torch.cartesian_prod(torch.arange(2), torch.arange(2)).tolist():
        expected = -advantages[row, token] / 3 if mask[row, token] else 0.0
        assert log_probs.grad[row, token] == expected

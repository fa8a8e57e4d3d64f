"""Means over what is selected, and categorical accuracy."""

from __future__ import annotations

import torch

from contrastive_reasoning.losses import categorical_accuracy, mean_over


def test_mean_over_the_selected_entries() -> None:
    assert mean_over(torch.tensor([1.0, 5.0, 100.0]), torch.tensor([True, True, False])).item() == 3.0


def test_an_empty_selection_is_a_zero_that_backpropagates() -> None:
    values = torch.tensor([float("inf"), 2.0], requires_grad=True)
    loss = mean_over(values, torch.tensor([False, False]))
    loss.backward()
    assert loss.item() == 0.0
    assert values.grad is not None
    assert values.grad.tolist() == [0.0, 0.0]


def test_accuracy_is_over_candidates_and_the_first_of_equals_wins() -> None:
    logits = torch.tensor([[1.0, 3.0, 2.0], [2.0, 2.0, 0.0], [5.0, 1.0, 1.0], [1.0, 1.0, 1.0]])
    positive = torch.tensor([[False, False, True], [False, True, False], [True, False, False], [False, False, False]])
    candidate = torch.tensor([[True, False, True], [True, True, True], [True, True, True], [True, True, True]])
    assert categorical_accuracy(logits, positive, candidate).tolist() == [True, False, True, False]

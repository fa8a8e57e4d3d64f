"""Drawn negatives, means over anchors, and categorical accuracy."""

from __future__ import annotations

import torch

from contrastive_reasoning.losses import categorical_accuracy, mean_over
from contrastive_reasoning.losses.masked import draw_negatives


def test_draw_negatives_returns_count_candidates_or_all_if_fewer() -> None:
    positive = torch.eye(6, dtype=torch.bool)
    candidate = torch.ones(6, 6, dtype=torch.bool)
    candidate[0, 3:] = False
    candidate[1] = positive[1]
    drawn = draw_negatives(positive, candidate, count=3, generator=torch.Generator().manual_seed(0))
    negatives = drawn & ~positive
    assert bool((drawn & positive == positive).all())
    assert not bool((negatives & ~candidate).any())
    assert negatives.sum(dim=1).tolist() == [2, 0, 3, 3, 3, 3]


def test_draw_negatives_is_reproducible_and_uniform() -> None:
    positive = torch.eye(4, dtype=torch.bool)
    candidate = torch.ones(4, 4, dtype=torch.bool)

    def draw(seed: int) -> torch.Tensor:
        return draw_negatives(positive, candidate, count=1, generator=torch.Generator().manual_seed(seed))

    assert bool((draw(3) == draw(3)).all())
    share = torch.stack([(draw(seed) & ~positive).double() for seed in range(600)]).mean(dim=0)
    assert share[~positive].sub(1 / 3).abs().max() < 0.08


def test_mean_over_uses_selected_entries_and_is_zero_without_any() -> None:
    assert mean_over(torch.tensor([1.0, 5.0, 100.0]), torch.tensor([True, True, False])).item() == 3.0
    values = torch.tensor([float("inf"), 2.0], requires_grad=True)
    loss = mean_over(values, torch.tensor([False, False]))
    loss.backward()
    assert loss.item() == 0.0
    assert values.grad is not None
    assert values.grad.tolist() == [0.0, 0.0]


def test_categorical_accuracy_uses_candidates_and_first_of_ties() -> None:
    logits = torch.tensor([[1.0, 3.0, 2.0], [2.0, 2.0, 0.0], [5.0, 1.0, 1.0], [1.0, 1.0, 1.0]])
    positive = torch.tensor([[False, False, True], [False, True, False], [True, False, False], [False, False, False]])
    candidate = torch.tensor([[True, False, True], [True, True, True], [True, True, True], [True, True, True]])
    assert categorical_accuracy(logits, positive, candidate).tolist() == [True, False, True, False]

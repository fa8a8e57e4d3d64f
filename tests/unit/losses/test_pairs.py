"""Which pairs are positive, which count, which are drawn."""

from __future__ import annotations

import torch

from contrastive_reasoning.losses.pairs import (
    candidates_of,
    different_from_own,
    different_trajectory,
    draw_negatives,
    same_label,
    without_self,
)


def test_same_goal_pairs_are_no_negatives() -> None:
    own = torch.tensor([[7], [7], [9]])
    assert different_from_own(own, own).tolist() == [[False, False, True], [False, False, True], [True, True, False]]


def test_goals_of_several_numbers_differ_when_one_number_does() -> None:
    goals = torch.tensor([[3, 4], [3, 5]])
    assert different_from_own(goals, goals).tolist() == [[False, True], [True, False]]


def test_candidates_are_the_positives_and_what_all_masks_allow() -> None:
    positive = torch.eye(3, dtype=torch.bool)
    other_goal = different_from_own(torch.tensor([[7], [7], [9]]), torch.tensor([[7], [7], [9]]))
    elsewhere = different_trajectory(torch.tensor([0, 1, 1]), torch.tensor([0, 1, 1]))
    counts = candidates_of(positive, other_goal, elsewhere)
    assert counts.tolist() == [[True, False, True], [False, True, False], [True, False, True]]


def test_same_label_and_without_self() -> None:
    labels = torch.tensor([1, 1, 0])
    positive = same_label(labels, labels) & without_self(3, device=labels.device)
    assert positive.tolist() == [[False, True, False], [True, False, False], [False, False, False]]


def test_drawn_negatives_are_candidates_and_as_many_as_asked() -> None:
    positive = torch.eye(6, dtype=torch.bool)
    candidate = torch.ones(6, 6, dtype=torch.bool)
    candidate[0, 3:] = False
    candidate[1] = positive[1]
    drawn = draw_negatives(positive, candidate, count=3, generator=torch.Generator().manual_seed(0))
    negatives = drawn & ~positive
    assert bool((drawn & positive == positive).all())
    assert not bool((negatives & ~candidate).any())
    assert negatives.sum(dim=1).tolist() == [2, 0, 3, 3, 3, 3]


def test_draws_are_a_function_of_the_seed_and_uniform() -> None:
    positive = torch.eye(4, dtype=torch.bool)
    candidate = torch.ones(4, 4, dtype=torch.bool)

    def draw(seed: int) -> torch.Tensor:
        return draw_negatives(positive, candidate, count=1, generator=torch.Generator().manual_seed(seed))

    assert bool((draw(3) == draw(3)).all())
    share = torch.stack([(draw(seed) & ~positive).double() for seed in range(600)]).mean(dim=0)
    assert share[~positive].sub(1 / 3).abs().max() < 0.08

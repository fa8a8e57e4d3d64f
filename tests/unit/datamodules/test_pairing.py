from __future__ import annotations

import numpy as np

from contrastive_reasoning.critics.base import NONE
from datamodules.pairing import EveryGoal, OwnGoal

REACHED = np.zeros((3, 20), dtype=bool)
REACHED[0, [5, 7]] = REACHED[1, [7]] = REACHED[2, [9]] = True
HINDSIGHT, TARGETS = np.array([5, 7, NONE]), np.array([8, 5, 8])
EXHAUSTED = np.array([True, True, False])


def test_every_goal_stands_once_and_what_was_reached_is_positive() -> None:
    goals, positive, candidate = EveryGoal()(HINDSIGHT, TARGETS, REACHED, EXHAUSTED)
    assert goals.tolist() == [5, 7, 8]
    assert positive.tolist() == [[True, True, False], [False, True, False], [False, False, False]]
    # of the unexhausted anchor its own problem's target, 8, stays unknown
    assert candidate.tolist() == [[True, True, True], [True, True, True], [True, True, False]]


def test_own_goal_masks_the_same_goal_the_reachable_and_the_unknown() -> None:
    goals, positive, candidate = OwnGoal()(HINDSIGHT, TARGETS, REACHED, EXHAUSTED)
    assert goals.tolist() == [5, 7, NONE, 8, 5, 8]
    assert positive.sum(axis=1).tolist() == [1, 1, 0]
    assert positive[0, 0]
    assert positive[1, 1]
    # anchor 0 reaches 5 and 7, so column 1 is masked; column 4 asks for its own goal again
    assert candidate[0].tolist() == [True, False, False, True, False, True]
    assert candidate[1].tolist() == [True, True, False, True, True, True]
    assert candidate[2].tolist() == [True, True, False, False, False, False]


def test_what_another_reached_is_no_negative_of_an_open_state_whose_target_it_is() -> None:
    """Nothing speaks against 7 there, and it is what a reward will ask; the exhausted anchor is certified not to."""
    targets = np.array([8, 5, 7])
    _, _, candidate = OwnGoal()(HINDSIGHT, targets, REACHED, EXHAUSTED)
    assert candidate[2].tolist() == [True, False, False, False, False, False]
    targets = np.array([9, 5, 8])
    _, _, candidate = OwnGoal()(np.array([5, 7, 9]), targets, REACHED, EXHAUSTED)
    assert candidate[0].tolist() == [True, False, True, True, False, True], "9 is its own target, from where ever"

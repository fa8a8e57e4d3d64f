from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from contrastive_reasoning.critics.replay_buffer import ReplayBuffer, ReplayedState, replay_batch
from contrastive_reasoning.tasks.countdown.states import Known
from datamodules.hindsight_states import EveryGoal, OwnGoal


def known(*values: int, exhausted: bool = False) -> Known:
    return Known(frozenset(values), exhausted)


def fill_buffer(capacity: int) -> ReplayBuffer:
    met = ReplayBuffer(capacity=capacity)
    met.add((6, 4), [24], known(10))
    met.add((5, 4), [24], known(20))
    met.add((6, 4), [30], known(2, 24, exhausted=True))
    met.add((9, 3, 1), [12], known(700))
    return met


def everything(met: ReplayBuffer) -> dict[tuple[int, ...], ReplayedState]:
    drawn = met.draw(200, np.random.default_rng(0))
    return {each.state: each for each in drawn}


def test_a_state_met_again_is_the_newest_and_keeps_what_was_shown() -> None:
    assert everything(fill_buffer(2)) == {
        (6, 4): ReplayedState((6, 4), (24, 30), known(2, 10, 24, exhausted=True)),
        (9, 3, 1): ReplayedState((9, 3, 1), (12,), known(700)),
    }
    assert len(fill_buffer(3)) == 3


def test_every_state_is_as_likely() -> None:
    drawn = fill_buffer(3).draw(3000, np.random.default_rng(1))
    shares = Counter(each.state for each in drawn)
    assert len(shares) == 3
    assert min(shares.values()) > 850, "five standard deviations below a third"


def test_it_comes_back_in_the_same_order() -> None:
    met, again = fill_buffer(3), ReplayBuffer(capacity=3)
    again.load_state_dict(met.state_dict())
    for one in (met, again):
        one.add((7, 7), [49], known(49))
    assert everything(again) == everything(met)
    assert met.draw(50, np.random.default_rng(2)) == again.draw(50, np.random.default_rng(2))


def test_an_empty_one_comes_back_and_has_nothing_to_draw() -> None:
    empty = ReplayBuffer(capacity=1)
    empty.load_state_dict(ReplayBuffer(capacity=1).state_dict())
    with pytest.raises(ValueError, match="the replay buffer is empty"):
        empty.draw(1, np.random.default_rng(0))
    with pytest.raises(ValueError, match="capacity must be at least 1, got 0"):
        ReplayBuffer(capacity=0)


MET = [
    ReplayedState((6, 4), (30,), known(2, 10, 24, exhausted=True)),
    ReplayedState((5, 4), (24,), known(20)),
    ReplayedState((9, 3, 1), (30, 12), known(700)),
]


def test_pairs_are_positive_where_reached_negative_where_shown_and_open_for_the_own_target() -> None:
    batch = replay_batch(MET, pairing=EveryGoal(), goal_range=(10, 50), rng=np.random.default_rng(0))
    goals = batch.goals.tolist()
    assert set(goals) >= {20, 30, 24, 12}
    assert set(goals) <= {10, 20, 30, 24, 12}, "one of 10 and 24 by hindsight; 2 and 700 lie outside of the range"
    assert batch.state_actions.tolist() == [[6, 4, -1, -1, -1, -1], [5, 4, -1, -1, -1, -1], [9, 3, 1, -1, -1, -1]]
    for row, (_, targets, shown) in enumerate(MET):
        for column, goal in enumerate(goals):
            assert bool(batch.positive[row, column]) == (goal in shown.reached)
            open_question = goal in targets and not shown.exhausted and goal not in shown.reached
            assert bool(batch.candidate[row, column]) != open_question


def test_with_one_goal_a_row_the_drawn_one_is_positive() -> None:
    batch = replay_batch(MET, pairing=OwnGoal(), goal_range=(10, 50), rng=np.random.default_rng(0))
    assert batch.positive.sum(dim=1).tolist() == [1, 1, 0]
    assert batch.goals[1] == 20
    assert batch.goals[0] in (10, 24)
    assert torch.equal(batch.goals[3:], torch.tensor([30, 24, 12]))
    assert batch.candidate[0, 3]
    assert not batch.candidate[1:, 3:].any(), "unless exhausted, no target counts"


def test_a_value_that_was_once_the_own_target_is_nobodys_negative() -> None:
    """By hindsight 20 of another anchor, for which its owner was not known to reach it either."""
    met = [
        ReplayedState((6, 4), (20, 30), known(10)),
        ReplayedState((5, 4), (24,), known(20)),
        ReplayedState((7, 2), (9,), known(14)),
    ]
    batch = replay_batch(met, pairing=OwnGoal(), goal_range=(10, 50), rng=np.random.default_rng(0))
    assert batch.goals[:3].tolist() == [10, 20, 14]
    assert batch.candidate[:, :3].tolist() == [[True, False, True], [True, True, True], [True, True, True]]


def test_targets_are_kept_once_the_newest_last() -> None:
    met = fill_buffer(3)
    met.add((6, 4), [30, 24], known(5))
    assert everything(met)[6, 4].targets == (30, 24)

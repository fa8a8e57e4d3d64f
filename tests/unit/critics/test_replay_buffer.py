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
    buffer = ReplayBuffer(capacity=capacity)
    buffer.add((6, 4), [24], known(10))
    buffer.add((5, 4), [24], known(20))
    buffer.add((6, 4), [30], known(2, 24, exhausted=True))
    buffer.add((9, 3, 1), [12], known(700))
    return buffer


def draw_all(buffer: ReplayBuffer) -> dict[tuple[int, ...], ReplayedState]:
    states = buffer.draw(200, np.random.default_rng(0))
    return {each.state: each for each in states}


def test_readded_state_becomes_newest_and_merges_known_values() -> None:
    assert draw_all(fill_buffer(2)) == {
        (6, 4): ReplayedState((6, 4), (24, 30), known(2, 10, 24, exhausted=True)),
        (9, 3, 1): ReplayedState((9, 3, 1), (12,), known(700)),
    }
    buffer = fill_buffer(3)
    assert len(buffer) == 3
    buffer.add((6, 4), [30, 24], known(5))
    assert draw_all(buffer)[6, 4].targets == (30, 24), "each once, the newest last"


def test_draw_is_uniform_over_states() -> None:
    states = fill_buffer(3).draw(3000, np.random.default_rng(1))
    shares = Counter(each.state for each in states)
    assert len(shares) == 3
    assert min(shares.values()) > 850, "five standard deviations below a third"


def test_state_dict_restores_states_in_order() -> None:
    buffer, loaded = fill_buffer(3), ReplayBuffer(capacity=3)
    loaded.load_state_dict(buffer.state_dict())
    for one in (buffer, loaded):
        one.add((7, 7), [49], known(49))
    assert draw_all(loaded) == draw_all(buffer)
    assert buffer.draw(50, np.random.default_rng(2)) == loaded.draw(50, np.random.default_rng(2))


def test_empty_buffer_can_be_loaded_and_draw_raises() -> None:
    empty = ReplayBuffer(capacity=1)
    empty.load_state_dict(ReplayBuffer(capacity=1).state_dict())
    with pytest.raises(ValueError, match="replay buffer"):
        empty.draw(1, np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"capacity.*0"):
        ReplayBuffer(capacity=0)


STATES = [
    ReplayedState((6, 4), (30,), known(2, 10, 24, exhausted=True)),
    ReplayedState((5, 4), (24,), known(20)),
    ReplayedState((9, 3, 1), (30, 12), known(700)),
]


def test_replay_batch_marks_positive_negative_and_open_pairs() -> None:
    batch = replay_batch(STATES, pairing=EveryGoal(), goal_range=(10, 50), rng=np.random.default_rng(0))
    goals = batch.goals.tolist()
    assert set(goals) >= {20, 30, 24, 12}
    assert set(goals) <= {10, 20, 30, 24, 12}, "one of 10 and 24 by hindsight; 2 and 700 lie outside of the range"
    assert batch.state_actions.tolist() == [[6, 4, -1, -1, -1, -1], [5, 4, -1, -1, -1, -1], [9, 3, 1, -1, -1, -1]]
    for row, (_, targets, shown) in enumerate(STATES):
        for column, goal in enumerate(goals):
            assert bool(batch.positive[row, column]) == (goal in shown.reached)
            open_question = goal in targets and not shown.exhausted and goal not in shown.reached
            assert bool(batch.candidate[row, column]) != open_question


def test_own_goal_pairing_marks_drawn_goal_as_positive() -> None:
    batch = replay_batch(STATES, pairing=OwnGoal(), goal_range=(10, 50), rng=np.random.default_rng(0))
    assert batch.positive.sum(dim=1).tolist() == [1, 1, 0]
    assert batch.goals[1] == 20
    assert batch.goals[0] in (10, 24)
    assert torch.equal(batch.goals[3:], torch.tensor([30, 24, 12]))
    assert batch.candidate[0, 3]
    assert not batch.candidate[1:, 3:].any(), "unless exhausted, no target counts"


def test_earlier_target_is_not_a_negative() -> None:
    """20 is the hindsight goal of another anchor. It is unknown whether the first state reaches it."""
    states = [
        ReplayedState((6, 4), (20, 30), known(10)),
        ReplayedState((5, 4), (24,), known(20)),
        ReplayedState((7, 2), (9,), known(14)),
    ]
    batch = replay_batch(states, pairing=OwnGoal(), goal_range=(10, 50), rng=np.random.default_rng(0))
    assert batch.goals[:3].tolist() == [10, 20, 14]
    assert batch.candidate[:, :3].tolist() == [[True, False, True], [True, True, True], [True, True, True]]

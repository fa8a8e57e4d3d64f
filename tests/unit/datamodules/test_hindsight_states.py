from __future__ import annotations

import numpy as np
import pytest
import torch

from contrastive_reasoning.losses import BinaryNCE, InfoNCE
from contrastive_reasoning.tasks.countdown import CountdownTask, reachable
from datamodules.hindsight_plays import HeldOut, draw_starts, play
from datamodules.hindsight_states import HindsightStates, draw_reached, split_by_shares
from datamodules.oracle_states import held_out_numbers, oracle_states
from datamodules.pairing import EveryGoal, OwnGoal, Pairing

TASK = CountdownTask(
    style="direct",
    train="generated",
    test="generated",
    longproc_dir=None,
    counts=[4],
    number_range=[1, 20],
    target_range=[10, 50],
    max_search_lines=None,
    train_problems=10,
    validation_problems=20,
    test_problems=20,
    seed=0,
)


def states(*, pairing: Pairing | None = None, exhaust_up_to: int = 4, seed: int = 0) -> HindsightStates:
    return HindsightStates(
        task=TASK,
        numbers=4,
        number_range=[1, 49],
        target_range=[10, 50],
        depth_shares=[0.2, 0.5, 0.3],
        exhaust_up_to=exhaust_up_to,
        pairing=pairing or EveryGoal(),
        batch_size=40,
        validation_batches=2,
        oracle_batch_size=1000,
        workers=0,
        seed=seed,
    )


def test_every_pair_of_exhausted_states_is_labelled_as_the_oracle_says() -> None:
    batch = states().batch(3)
    assert batch.candidate.all()
    for row, state in enumerate(batch.state_actions.tolist()):
        numbers = [number for number in state if number >= 0]
        expected = [reachable(numbers, goal) for goal in batch.goals.tolist()]
        assert batch.positive[row].tolist() == expected


def test_unexhausted_states_know_what_one_branch_reached_and_no_more() -> None:
    batch = states(exhaust_up_to=2).batch(3)
    assert not batch.candidate.all()
    for row, state in enumerate(batch.state_actions.tolist()):
        numbers = [number for number in state if number >= 0]
        reached = [
            goal for goal, is_reached in zip(batch.goals.tolist(), batch.positive[row], strict=True) if is_reached
        ]
        assert all(reachable(numbers, goal) for goal in reached)


def test_batches_are_a_function_of_seed_split_and_number() -> None:
    one, same = states().batch(5), states().batch(5)
    assert torch.equal(one.state_actions, same.state_actions)
    assert torch.equal(one.goals, same.goals)
    for other in (states().batch(6), states(seed=1).batch(5), states().batch(5, split=1)):
        assert not torch.equal(one.state_actions, other.state_actions)


def test_workers_and_resuming_keep_the_order() -> None:
    data = states()
    data.workers = 2
    loaded = iter(data.train_dataloader())
    for number in range(3):
        assert torch.equal(next(loaded).state_actions, data.batch(number).state_actions)


def test_no_trajectory_starts_from_the_numbers_of_a_held_out_problem() -> None:
    held_out = held_out_numbers(TASK)
    assert {tuple(sorted(state.numbers)) for state in oracle_states()} <= held_out
    data = states()
    for number in range(20):
        starts = [state for state in data.batch(number).state_actions.tolist() if state[3] >= 0]
        assert starts
        assert not {tuple(sorted(state[:4])) for state in starts} & held_out


def test_held_out_starts_are_drawn_again_or_refused() -> None:
    rng = np.random.default_rng(0)
    most = HeldOut.of([(a, b) for a in (1, 2, 3) for b in (1, 2, 3) if (a, b) not in ((1, 2), (2, 1))])
    starts = draw_starts(50, numbers=2, number_range=(1, 3), held_out=most, rng=rng)
    assert {tuple(sorted(start)) for start in starts.tolist()} == {(1, 2)}
    everything = HeldOut.of([(1, 1), (1, 2), (2, 2)])
    with pytest.raises(ValueError, match="widen number_range"):
        draw_starts(50, numbers=2, number_range=(1, 2), held_out=everything, rng=rng)


def test_anchors_are_as_deep_as_asked_and_known_as_far_as_searched() -> None:
    starts = np.array([[3, 7, 20, 41], [1, 1, 2, 9]])
    deep = play(starts, moves=1, exhaust_up_to=3, rng=np.random.default_rng(0))
    assert deep.anchors.shape == (2, 3)
    assert deep.exhausted
    shallow = play(starts, moves=0, exhaust_up_to=3, rng=np.random.default_rng(0))
    assert shallow.anchors.shape == (2, 4)
    assert not shallow.exhausted
    assert shallow.reached.any(axis=1).all()


def test_hindsight_goals_are_reached_and_in_range() -> None:
    reached = np.zeros((3, 100), dtype=bool)
    reached[0, [3, 12, 40]] = reached[1, [60]] = True
    drawn = np.stack([draw_reached(reached, (10, 50), np.random.default_rng(k)) for k in range(200)])
    assert set(drawn[:, 0].tolist()) == {12, 40}
    assert set(drawn[:, 1:].flatten().tolist()) == {-1}


def test_own_goals_have_one_positive_a_row_and_train() -> None:
    batch = states(pairing=OwnGoal()).batch(0)
    assert batch.positive.sum(dim=1).max() == 1
    scores = torch.zeros(batch.positive.shape, requires_grad=True)
    for loss in (InfoNCE(temperature=1.0), BinaryNCE(temperature=1.0)):
        loss(scores, batch.positive, batch.candidate).backward()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()


def test_shares_are_split_without_loss() -> None:
    assert split_by_shares(10, [0.1, 0.6, 0.3]) == [1, 6, 3]
    assert split_by_shares(7, [0, 1, 0.001]) == [0, 6, 1]
    with pytest.raises(ValueError, match="shares must be"):
        split_by_shares(1, [1, 1])

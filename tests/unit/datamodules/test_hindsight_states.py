from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from contrastive_reasoning.critics.base import NONE, Pairing
from contrastive_reasoning.tasks.countdown import reachable
from datamodules.game_states import split_by_shares
from datamodules.hindsight_states import EveryGoal, HindsightStates, OwnGoal
from datamodules.oracle_states import held_out_states, oracle_states
from tests.unit.datamodules.kit import countdown

TASK = countdown()


def states(**changes: Any) -> HindsightStates:
    ranges = {"numbers": 4, "number_range": (1, 49), "target_range": (10, 50), "depth_shares": (0.2, 0.4, 0.3, 0.1)}
    sizes = {"batch_size": 40, "validation_batches": 2, "oracle_batch_size": 1000, "workers": 0, "seed": 0}
    labels = {"exhaust_up_to": 4, "pairing": EveryGoal()}
    return HindsightStates(task=TASK, **ranges | sizes | labels | changes)  # pyright: ignore[reportArgumentType]


def test_labels_of_exhausted_states_match_the_oracle() -> None:
    batch = states().batch(3)
    assert batch.candidate.all()
    for row, state in enumerate(batch.state_actions.tolist()):
        numbers = [number for number in state if number >= 0]
        expected = [reachable(numbers, goal) for goal in batch.goals.tolist()]
        assert batch.positive[row].tolist() == expected


def test_unexhausted_states_have_only_some_reachable_goals_as_positives() -> None:
    batch = states(exhaust_up_to=2).batch(3)
    assert not batch.candidate.all()
    positives = missed = 0
    for row, state in enumerate(batch.state_actions.tolist()):
        numbers = [number for number in state if number >= 0]
        if len(numbers) <= 2:
            continue
        for goal, reached in zip(batch.goals.tolist(), batch.positive[row].tolist(), strict=True):
            could = reachable(numbers, goal)
            assert could or not reached
            positives += reached
            missed += could and not reached
    assert positives > 0
    assert missed > 0, "positives that are all that can be reached would be the oracle's"


def test_anchors_are_never_held_out_states() -> None:
    held_out = held_out_states(TASK)
    evaluated = [numbers for state in oracle_states() for numbers in (state.numbers, state.state)]
    evaluated += [problem.numbers for problem in TASK.problems("test")]
    assert {tuple(sorted(numbers)) for numbers in evaluated} <= held_out
    data = states()
    for number in range(20):
        for state in data.batch(number).state_actions.tolist():
            assert tuple(sorted(each for each in state if each >= 0)) not in held_out


@pytest.mark.parametrize("pairing", [EveryGoal(), OwnGoal()])
@pytest.mark.parametrize("exhaust_up_to", [2, 4])
def test_report_counts_reachable_negatives(pairing: Pairing, exhaust_up_to: int) -> None:
    report = states(pairing=pairing, exhaust_up_to=exhaust_up_to, batch_size=20).label_report()
    exhausted = {name: share for name, share in report.items() if 4 - int(name[-1]) <= exhaust_up_to}
    assert set(exhausted.values()) == {0.0}, "exact labels"
    assert all(report[name] > 0 for name in report.keys() - exhausted.keys())
    assert len(report) == 4


@pytest.mark.parametrize("pairing", [EveryGoal(), OwnGoal()])
def test_finished_play_reaches_only_its_last_number(pairing: Pairing) -> None:
    batch = states(pairing=pairing, depth_shares=[0.0, 0.0, 0.0, 1.0], batch_size=80).batch(0)
    left = batch.state_actions[:, 0]
    assert (batch.state_actions[:, 1:] == -1).all()
    assert not (batch.positive & (left[:, None] != batch.goals[None])).any()
    in_range = (left >= 10) & (left <= 50)
    assert batch.positive.any(dim=1).equal(in_range)
    assert 0.4 <= in_range.float().mean() < 1, "as many as can be told apart, and some beyond the targets"


def test_split_by_shares_keeps_the_total() -> None:
    assert split_by_shares(10, [0.1, 0.6, 0.3]) == [1, 6, 3]
    assert split_by_shares(7, [0.0, 1.0, 0.001]) == [0, 6, 1]
    with pytest.raises(ValueError, match="shares"):
        split_by_shares(1, [1.0, 1.0])


def test_hindsight_states_reach_largest_numbers() -> None:
    assert states(number_range=[0, 1999], target_range=[0, 1999]).batch(0).positive.any()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *product(["target_range", "number_range"], ([10, 2000], [-1, 5], [7, 3], [4])),
        ("exhaust_up_to", 0),
    ],
)
def test_hindsight_states_rejects_settings_out_of_range(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        states(**{name: value})


REACHED = np.zeros((3, 20), dtype=bool)
REACHED[0, [5, 7]] = REACHED[1, [7]] = REACHED[2, [9]] = True
HINDSIGHT, TARGETS = np.array([5, 7, NONE]), np.array([8, 5, 8])
EXHAUSTED = np.array([True, True, False])


def test_every_goal_returns_distinct_goals_with_reached_ones_positive() -> None:
    goals, positive, candidate = EveryGoal()(HINDSIGHT, TARGETS, REACHED, EXHAUSTED)
    assert goals.tolist() == [5, 7, 8]
    assert positive.tolist() == [[True, True, False], [False, True, False], [False, False, False]]
    # 8, the target of the unexhausted anchor's own problem, stays unknown
    assert candidate.tolist() == [[True, True, True], [True, True, True], [True, True, False]]


def test_own_goal_masks_equal_reachable_and_unknown_goals() -> None:
    goals, positive, candidate = OwnGoal()(HINDSIGHT, TARGETS, REACHED, EXHAUSTED)
    assert goals.tolist() == [5, 7, NONE, 8, 5, 8]
    assert positive.sum(axis=1).tolist() == [1, 1, 0]
    assert positive[0, 0]
    assert positive[1, 1]
    # anchor 0 reaches 5 and 7, so column 1 is masked; column 4 repeats its own goal
    assert candidate[0].tolist() == [True, False, False, True, False, True]
    assert candidate[1].tolist() == [True, True, False, True, True, True]
    assert candidate[2].tolist() == [True, True, False, False, False, False]


def test_own_goal_masks_the_target_of_an_unexhausted_anchor_in_all_columns() -> None:
    """A reward evaluates this goal, which the search has not ruled out. For an exhausted anchor it has."""
    _, _, candidate = OwnGoal()(HINDSIGHT, np.array([8, 5, 7]), REACHED, EXHAUSTED)
    assert candidate[2].tolist() == [True, False, False, False, False, False]
    _, _, candidate = OwnGoal()(np.array([5, 7, 9]), np.array([9, 5, 8]), REACHED, EXHAUSTED)
    assert candidate[0].tolist() == [True, False, True, True, False, True], "9 is its own target, from where ever"

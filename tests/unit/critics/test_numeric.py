"""Numeric critics: their inputs, and initial weights that depend only on the seed."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from contrastive_reasoning.critics import NumericV1, NumericV2
from contrastive_reasoning.critics.numeric import digits_of
from contrastive_reasoning.losses import cosine, dot
from contrastive_reasoning.tasks.base import Problem, Step
from contrastive_reasoning.tasks.countdown.states import encode_state

PROBLEM = Problem(id="a", prompt="", answer="46", fields={"numbers": (21, 16, 17, 26), "target": 46})
STEPS = [Step(start=0, end=8, state=state, legal=True) for state in ((37, 17, 26), (20, 26))]


def build(kind: type, seed: int = 0, similarity=dot) -> NumericV1 | NumericV2:
    sizes = {"digit_dimension": 16, "hidden_dimension": 256, "hidden_layers": 2, "dimension": 64}
    return kind(**sizes, similarity=similarity, seed=seed)


@pytest.mark.parametrize("kind", [NumericV1, NumericV2])
@pytest.mark.parametrize("similarity", [dot, cosine])
def test_pairs_equal_diagonal_of_all_pairs(kind: type, similarity) -> None:
    critic = build(kind, similarity=similarity)
    state_actions, goals = critic.encode_steps(PROBLEM, "21+16=37;37-17=20", STEPS)
    scores = critic(state_actions, goals)
    assert scores.shape == (2, 2)
    assert_close(critic.pairs(state_actions, goals), scores.diagonal())


@pytest.mark.parametrize("kind", [NumericV1, NumericV2])
def test_weights_depend_only_on_seed(kind: type) -> None:
    torch.manual_seed(1)
    first = build(kind, seed=3)
    torch.manual_seed(2)
    drawn = torch.rand(1)
    torch.manual_seed(2)
    second = build(kind, seed=3)
    assert_close(torch.rand(1), drawn)
    for name, weight in first.state_dict().items():
        assert torch.equal(weight, second.state_dict()[name])
    assert not torch.equal(first.goal_head[0].weight, build(kind, seed=4).goal_head[0].weight)


def test_v1_reads_initial_array_then_reached_array_and_v2_only_the_latter() -> None:
    start, reached = [26, 21, 17, 16, -1, -1], [[37, 26, 17, -1, -1, -1], [26, 20, -1, -1, -1, -1]]
    state_actions, goals = build(NumericV1).encode_steps(PROBLEM, "", STEPS)
    assert state_actions.tolist() == [[start, array] for array in reached]
    assert goals.tolist() == [[46, -1, -1, -1, -1, -1]] * 2
    state_actions, goals = build(NumericV2).encode_steps(PROBLEM, "", STEPS)
    assert (state_actions.tolist(), goals.tolist()) == (reached, [46, 46])


def test_problem_without_target_raises() -> None:
    with pytest.raises(ValueError, match=r"'b'.*target"):
        build(NumericV2).encode_steps(Problem(id="b", prompt="", answer="", fields={"numbers": (1,)}), "", STEPS)


def test_encode_state_sorts_pads_and_checks_range() -> None:
    assert encode_state((17, 0, 26)) == [26, 17, 0, -1, -1, -1]
    for numbers, named in (range(7), "6.*7"), ([10000, 3], "9999"):
        with pytest.raises(ValueError, match=named):
            encode_state(numbers)


def test_digits_of_splits_numbers_and_marks_padding() -> None:
    assert digits_of(torch.tensor([1045, 7, 0, -1])).tolist() == [[1, 0, 4, 5], [0, 0, 0, 7], [0] * 4, [10] * 4]

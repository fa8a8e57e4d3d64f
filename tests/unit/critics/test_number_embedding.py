"""NumberCritic, with an embedding for each number: its inputs, and its formula written out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.testing import assert_close

from contrastive_reasoning.critics import NumberCritic, TraceCritic
from contrastive_reasoning.critics.number_embedding import array_of
from contrastive_reasoning.losses import cosine
from contrastive_reasoning.tasks.base import Problem, Step

PROBLEM = Problem(id="a", prompt="", answer="46", fields={"numbers": (21, 16, 17, 26), "target": 46})


def build(**changes: Any) -> NumberCritic:
    sizes: dict[str, Any] = {"number_dimension": 64, "slots": 4, "largest": 1000, "hidden_dimension": 256}
    return NumberCritic(**sizes | {"dimension": 256, "similarity": cosine, "seed": 0} | changes)


def test_array_of_parses_current_state_of_line() -> None:
    assert array_of("|- Try 54 / 26 = 2.1. ### Current State: [2.1, 17]") == [502, 17]
    assert array_of("|- Try 601 / 300 = 2.0. ### Current State: [2.0]") == [502]
    assert array_of("|- no state") == []


def test_lines_are_encoded_as_four_slots_in_descending_order() -> None:
    critic = build()
    assert isinstance(critic, TraceCritic)
    texts = [f"### Current State: {state}" for state in ("[16, 21, 17, 26]", "[20, 26]", "[5, 1, 2, 4, 3]", "[7.9]")]
    expected = [[26, 21, 17, 16], [26, 20, -1, -1], [5, 4, 3, 2], [507, -1, -1, -1]]
    assert critic.encode_goals(texts).tolist() == expected
    assert critic.encode_actions([""] * 4, texts).tolist() == expected
    assert critic.encode_goals(["target found!"]).tolist() == [[-1, -1, -1, -1]]


def test_zero_slots_raise() -> None:
    with pytest.raises(ValueError, match=r"slots.*0"):
        build(slots=0)


def test_values_match_explicit_formula() -> None:
    critic = build()
    actions, goals = torch.tensor([[37, 26, 17, -1], [1404, -1, -1, -1]]), torch.tensor([[46, -1, -1, -1]])

    def side(numbers: Any, head: Any, array: list[int]) -> torch.Tensor:
        parts = [numbers.blank if n == -1 else numbers.table.weight[min(n, 1000)] for n in array]
        hidden = torch.nn.functional.leaky_relu(torch.cat(parts) @ head[0].weight.T + head[0].bias)
        return hidden @ head[2].weight.T + head[2].bias

    goal = side(critic.goal_numbers, critic.goal_head, goals[0].tolist())
    for row, array in enumerate(actions.tolist()):
        action = side(critic.action_numbers, critic.action_head, array)
        expected = action @ goal / (action.norm() * goal.norm())
        assert_close(critic(actions, goals)[row, 0], expected)


def test_goals_have_separate_weights_and_blank_is_trained() -> None:
    critic = build()
    critic(torch.tensor([[3, -1, -1, -1]]), torch.tensor([[5, -1, -1, -1]])).sum().backward()
    for slots, number in ((critic.action_numbers, 3), (critic.goal_numbers, 5)):
        assert slots.blank.grad is not None
        assert slots.blank.grad.abs().sum() > 0
        assert slots.table.weight.grad is not None
        assert slots.table.weight.grad.abs().sum(dim=1).nonzero().flatten().tolist() == [number]
    names = [name for name, _ in critic.named_parameters()]
    assert len(names) == len(set(names)) == 12


def test_steps_and_dataset_rows_are_encoded_alike() -> None:
    critic = build()
    state_actions, goals = critic.encode_steps(PROBLEM, "", [Step(start=0, end=1, state=(20, 26), legal=True)])
    scores = critic(state_actions, goals)
    assert_close(scores, critic(critic.encode_goals(["### Current State: [26, 20]"]), torch.tensor([46])))
    assert_close(critic.pairs(state_actions, goals), scores.diagonal())

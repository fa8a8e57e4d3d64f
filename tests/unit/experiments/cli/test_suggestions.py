from __future__ import annotations

import pytest

from experiments.cli.suggestions import did_you_mean

KEYS = ["seed", "reward.weight", "loss.loss.weight", "rollout.group_size", "budget.grpo.steps"]


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        ("sed", "did you mean 'seed'?"),
        ("reward.wieght", "did you mean 'reward.weight'?"),
        ("weight", "did you mean 'reward.weight'?"),
        ("groupsize", "did you mean 'rollout.group_size'?"),
    ],
)
def test_names_the_nearest_key(word: str, answer: str) -> None:
    assert did_you_mean(word, KEYS) == answer


def test_lists_what_there_is_where_nothing_is_near() -> None:
    assert did_you_mean("xyz", ["b", "a"]) == "there are a, b"
    assert did_you_mean("xyz", []) == "there are none"

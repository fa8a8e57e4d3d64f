"""Bonuses of correct completions against sums by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from contrastive_reasoning.rewards import CorrectBonus, RandomScore, VerdictField
from contrastive_reasoning.rewards.correct_bonus import scaled_in_groups, spread_in_groups, told_apart
from tests.unit.rewards.test_clipo import Marked, rollouts

PATTERN = "1101 1111 0001 1110"
"""Correct and wrong completions; those of the first and the last group are told apart."""


def marks(pattern: str) -> torch.Tensor:
    return torch.tensor([mark == "1" for mark in pattern.replace(" ", "")])


def test_groups_with_two_correct_and_a_wrong_completion_are_told_apart() -> None:
    everything = torch.ones(16, dtype=torch.bool)
    assert told_apart(marks(PATTERN), everything, 4).equal(marks("1101 0000 0000 1110"))
    failed = marks("1111 1111 1111 1110")  # the only wrong one of the last group was not judged
    assert told_apart(marks(PATTERN), failed, 4).equal(marks("1101 0000 0000 0000"))


def test_bonus_is_centred_and_scaled_over_the_anchors_of_a_group() -> None:
    values = torch.tensor([1.0, 2.0, 100.0, 6.0, 0.1, 0.1, 0.1, -5.0], dtype=torch.float64)
    anchors, sigma = marks("1101 1110"), math.sqrt((4 + 1 + 9) / 3)
    bonus = scaled_in_groups(values, anchors, 4, spread=0.2)
    # equal values get nothing, despite rounding of their mean
    expected = [0.2 * -2 / sigma, 0.2 * -1 / sigma, 0.0, 0.2 * 3 / sigma, 0.0, 0.0, 0.0, 0.0]
    assert bonus.tolist() == pytest.approx(expected, abs=1e-12)
    assert not bonus[4:].any()
    assert spread_in_groups(values, anchors, 4).tolist() == pytest.approx([sigma, 0.0])
    assert spread_in_groups(bonus, anchors, 4).tolist() == pytest.approx([0.2, 0.0])
    broken = scaled_in_groups(values.where(values != 2.0, math.nan), anchors, 4, spread=0.2)
    assert broken[:4][anchors[:4]].isnan().all(), "a value that is not finite is not hidden"


def test_right_plans_get_more_by_the_chosen_spread(rollouts_of: Any) -> None:
    pattern = "1110 1111"
    outcome = Marked(pattern, right_plans=[row % 2 == 0 for row in range(8)])
    reward = CorrectBonus(outcome=outcome, score=VerdictField(field="right_plan"), spread=0.3)
    credit = reward(rollouts(rollouts_of, pattern))
    high, low = 0.3 / math.sqrt(2), -0.3 * math.sqrt(2)  # two right plans and a wrong one
    expected = torch.tensor([high, low, high, 0.0, 0.0, 0.0, 0.0, 0.0])
    torch.testing.assert_close(credit.parts["bonus"], expected)
    torch.testing.assert_close(credit.outcome, expected + credit.parts["verifier"])
    assert credit.metrics["bonus/spread"] == pytest.approx(0.3)


def test_completion_with_failed_verdict_gets_no_bonus(rollouts_of: Any) -> None:
    reward = CorrectBonus(outcome=Marked("11!0"), score=RandomScore(seed=0), spread=0.2)
    bonus = reward(rollouts(rollouts_of, "11!0")).parts["bonus"]
    assert sorted(bonus[:2].tolist()) == pytest.approx([-0.2, 0.2])
    assert not bonus[2:].any()


def test_missing_field_and_spread_of_zero_raise(rollouts_of: Any) -> None:
    reward = CorrectBonus(outcome=Marked("1110"), score=VerdictField(field="right_plan"), spread=0.2)
    with pytest.raises(ValueError, match=r"reward\.score\.field=right_plan"):
        reward(rollouts(rollouts_of, "1110"))
    with pytest.raises(ValueError, match=r"spread.*0"):
        CorrectBonus(outcome=Marked(), score=RandomScore(seed=0), spread=0.0)


def test_random_score_is_a_function_of_seed_and_texts_of_the_group(rollouts_of: Any) -> None:
    def scores(seed: int, *groups: str) -> list[float]:
        batch = rollouts(rollouts_of, " ".join("1" * len(group) for group in groups))
        return list(RandomScore(seed=seed)(replace(batch, texts=list("".join(groups))), []))

    first = scores(0, "ab", "ac")
    assert first == scores(0, "ab", "ac")
    assert len(set(first)) == 4, "the same text has another score in another group"
    assert first[:2] == scores(0, "ab"), "other groups do not matter, so ranks agree with one process"
    assert scores(1, "ab") != first[:2]
    assert all(0 <= score < 1 for score in first)

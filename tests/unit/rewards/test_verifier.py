from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from contrastive_reasoning.rewards import FormatReward, OverlongReward, VerifierReward, WeightedSum
from contrastive_reasoning.tasks.base import Problem, Task, Verdict
from tests.pace import assert_bounded_work

RIGHT = "21+16=37;37-17=20;26+20=46"
WRONG = "21+16=37;37-17=20;26-20=6"
TEXTS = [RIGHT, WRONG, "no idea", ""]
HOSTILE = ["9**9**9**9", "(" * 500_000, "21+16=37;" * 120_000, "__import__('os').system('true')", "\x00" * 1_000_000]


def test_verifier_reward_is_one_for_correct_completion_only(task: Task, rollouts_of) -> None:
    credit = VerifierReward(task=task)(rollouts_of(TEXTS))
    assert credit.outcome.tolist() == [1.0, 0.0, 0.0, 0.0]
    assert list(credit.parts) == ["verifier"]
    assert credit.steps is None
    assert credit.verdicts is not None
    assert [verdict.status for verdict in credit.verdicts] == ["ok", "wrong", "unparsed", "unparsed"]
    assert all(verdict.reason for verdict in credit.verdicts[1:])


class FailingTask:
    """A task whose verifier fails on the completion ``no idea``."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def verify(self, problem: Problem, completion: str) -> Verdict:
        broken = completion == "no idea"
        return Verdict(status="error", reason="out of order") if broken else self.task.verify(problem, completion)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.task, name)


def test_rollout_with_verifier_error_is_left_out(task: Task, rollouts_of) -> None:
    """It gets the mean of the others, which moves no mean. Of several ranks each logs its share, also a share of 0."""
    with pytest.warns(UserWarning, match=r"verifier failed .*: out of order$"):
        credit = VerifierReward(task=FailingTask(task))(rollouts_of(TEXTS))
    assert credit.verdicts is not None
    assert credit.failures == {2: credit.verdicts[2]}
    assert credit.failures[2].reason == "out of order"
    assert credit.metrics["reward/failed_error"] == 0.25
    assert credit.outcome.tolist() == pytest.approx([1.0, 0.0, 1 / 3, 0.0])
    assert VerifierReward(task=task)(rollouts_of(TEXTS)).metrics["reward/failed"] == 0
    readable = FormatReward(task=FailingTask(task))(rollouts_of(TEXTS))
    assert ([*readable.failures], readable.metrics["reward/failed"]) == ([2], 0.25)
    assert readable.outcome.tolist() == pytest.approx([1.0, 1.0, 2 / 3, 0.0])


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: text[:10])
def test_hostile_text_has_reward_zero_and_reason_after_bounded_work(task: Task, rollouts_of, text: str) -> None:
    rollouts = rollouts_of([""])
    object.__setattr__(rollouts, "texts", [text])
    with assert_bounded_work():
        credit = VerifierReward(task=task)(rollouts)
    assert credit.outcome.tolist() == [0.0]
    assert credit.verdicts is not None
    assert 0 < len(credit.verdicts[0].reason) < 500


def test_format_reward_needs_readable_answer_and_natural_end(task: Task, rollouts_of) -> None:
    assert FormatReward(task=task)(rollouts_of(TEXTS)).outcome.tolist() == [1.0, 1.0, 0.0, 0.0]
    assert FormatReward(task=task)(rollouts_of(TEXTS, finish="length")).outcome.tolist() == [0.0] * 4


def test_weighted_sum_rejects_different_names_and_repeated_parts(task: Task, rollouts_of) -> None:
    one = VerifierReward(task=task)
    with pytest.raises(ValueError, match=r"\(a, b\).*\(a\)"):
        WeightedSum(rewards={"a": one, "b": one}, weights={"a": 1.0})
    with pytest.raises(ValueError, match=r"b .*verifier"):
        WeightedSum(rewards={"a": one, "b": one}, weights={"a": 1.0, "b": 1.0})(rollouts_of(TEXTS))


@pytest.mark.parametrize("share", [0.2, 0.33, 1.0])
def test_overlong_reward_matches_formula(rollouts_of, share: float) -> None:
    def by_formula(length: int, most: float, cache: float) -> float:
        if length <= most - cache:
            return 0.0
        return (most - cache - length) / cache if length <= most else -1.0

    mask = torch.arange(29) < torch.arange(30)[:, None]
    rollouts = replace(
        rollouts_of(["a"] * 30), mask=mask, old_log_probs=torch.zeros(30, 29), completion_ids=mask.long()
    )
    got = OverlongReward(max_tokens=21, cache_share=share)(rollouts)
    assert got.outcome.tolist() == pytest.approx([by_formula(n, 21, 21 * share) for n in range(30)], abs=1e-6)


@pytest.mark.parametrize(("name", "value"), [("max_tokens", 0), ("cache_share", 0.0), ("cache_share", 1.5)])
def test_overlong_settings_out_of_range_raise(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name}.*{value}"):
        OverlongReward(**{"max_tokens": 10, "cache_share": 0.4, name: value})  # pyright: ignore

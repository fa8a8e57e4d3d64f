from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from contrastive_reasoning.rewards import FormatReward, OverlongReward, VerifierReward, WeightedSum
from contrastive_reasoning.rollout import RolloutBatch
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
    with pytest.warns(UserWarning, match=r"verifier failed .*: out of order$"):
        credit = VerifierReward(task=FailingTask(task))(rollouts_of(TEXTS))
    assert credit.verdicts is not None
    assert credit.failures == {2: credit.verdicts[2]}
    assert credit.failures[2].reason == "out of order"
    assert credit.metrics["reward/failed_error"] == 0.25
    assert credit.outcome.tolist() == pytest.approx([1.0, 0.0, 1 / 3, 0.0]), (
        "the mean of the others, which moves no mean"
    )
    healthy = VerifierReward(task=task)(rollouts_of(TEXTS))
    assert healthy.metrics["reward/failed"] == 0, "of several ranks each says its share"


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


def test_format_reward_leaves_out_rollout_with_verifier_error(task: Task, rollouts_of) -> None:
    credit = FormatReward(task=FailingTask(task))(rollouts_of(TEXTS))
    assert [*credit.failures] == [2]
    assert credit.metrics["reward/failed"] == 0.25
    assert credit.outcome.tolist() == pytest.approx([1.0, 1.0, 2 / 3, 0.0])


def test_weighted_sum_rejects_different_names_and_repeated_parts(task: Task, rollouts_of) -> None:
    one = VerifierReward(task=task)
    with pytest.raises(ValueError, match=r"\(a, b\).*\(a\)"):
        WeightedSum(rewards={"a": one, "b": one}, weights={"a": 1.0})
    with pytest.raises(ValueError, match=r"b .*verifier"):
        WeightedSum(rewards={"a": one, "b": one}, weights={"a": 1.0, "b": 1.0})(rollouts_of(TEXTS))


def with_lengths(rollouts: RolloutBatch, lengths: list[int]) -> RolloutBatch:
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return replace(rollouts, mask=mask, old_log_probs=torch.zeros(mask.shape), completion_ids=mask.long())


def by_formula(length: int, max_tokens: float, cache: float) -> float:
    if length <= max_tokens - cache:
        return 0.0
    return (max_tokens - cache - length) / cache if length <= max_tokens else -1.0


@pytest.mark.parametrize("share", [0.2, 0.33, 1.0])
def test_overlong_reward_matches_formula(rollouts_of, share: float) -> None:
    lengths = list(range(30))
    got = OverlongReward(max_tokens=21, cache_share=share)(with_lengths(rollouts_of(["a"] * 30), lengths))
    assert got.outcome.tolist() == pytest.approx([by_formula(n, 21, 21 * share) for n in lengths], abs=1e-6)


@pytest.mark.parametrize(("name", "value"), [("max_tokens", 0), ("cache_share", 0.0), ("cache_share", 1.5)])
def test_overlong_settings_out_of_range_raise(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name}.*{value}"):
        OverlongReward(**{"max_tokens": 10, "cache_share": 0.4, name: value})  # pyright: ignore

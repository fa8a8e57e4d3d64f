from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from contrastive_reasoning.rewards import OverlongReward, VerifierReward, WeightedSum
from contrastive_reasoning.rollout import RolloutBatch
from contrastive_reasoning.tasks.base import Task

LENGTHS = [0, 1, 6, 7, 8, 9, 10, 11, 40]
EXPECTED = [0.0, 0.0, 0.0, -0.25, -0.5, -0.75, -1.0, -1.0, -1.0]  # L_max = 10, L_cache = 4


def of_lengths(rollouts: RolloutBatch, lengths: list[int]) -> RolloutBatch:
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return replace(rollouts, mask=mask, old_log_probs=torch.zeros(mask.shape), completion_ids=mask.long())


def by_formula(length: int, max_tokens: float, cache: float) -> float:
    if length <= max_tokens - cache:
        return 0.0
    return (max_tokens - cache - length) / cache if length <= max_tokens else -1.0


def test_by_hand(rollouts_of) -> None:
    credit = OverlongReward(max_tokens=10, cache_share=0.4)(of_lengths(rollouts_of(["a"] * 9), LENGTHS))
    assert credit.outcome.tolist() == pytest.approx(EXPECTED)
    assert list(credit.parts) == ["overlong"]
    assert credit.verdicts is None


@pytest.mark.parametrize("share", [0.2, 0.33, 1.0])
def test_against_the_formula(rollouts_of, share: float) -> None:
    lengths = list(range(30))
    got = OverlongReward(max_tokens=21, cache_share=share)(of_lengths(rollouts_of(["a"] * 30), lengths))
    assert got.outcome.tolist() == pytest.approx([by_formula(n, 21, 21 * share) for n in lengths], abs=1e-6)


def test_beside_any_reward(task: Task, rollouts_of) -> None:
    rewards = {"verifier": VerifierReward(task=task), "overlong": OverlongReward(max_tokens=1, cache_share=1.0)}
    credit = WeightedSum(rewards=rewards, weights={"verifier": 1.0, "overlong": 0.5})(
        rollouts_of(["21+16=37;37-17=20;26+20=46", "no idea"])
    )
    assert credit.outcome.tolist() == [0.5, -0.5]
    assert credit.verdicts is not None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_tokens": 0}, "max_tokens must be at least 1, got 0"),
        ({"cache_share": 0.0}, r"cache_share must lie in \(0, 1\], got 0.0"),
        ({"cache_share": 1.5}, r"cache_share must lie in \(0, 1\], got 1.5"),
    ],
)
def test_settings_are_checked(change: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OverlongReward(**{"max_tokens": 10, "cache_share": 0.4, **change})  # pyright: ignore

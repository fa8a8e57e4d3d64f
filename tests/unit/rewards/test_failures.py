from __future__ import annotations

import warnings

import pytest

from contrastive_reasoning.rewards.failures import RewardFailed, Warned, failure_metrics, refuse_too_many
from contrastive_reasoning.tasks.base import Verdict

RAISED = Verdict(status="error", reason="ValueError: no such unit")
SLOW = Verdict(status="timeout", reason="no reply within 2 s")


def test_the_first_of_each_status_is_said_and_no_other() -> None:
    warned = Warned("reward.function")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warned({0: RAISED, 1: RAISED})
        warned({2: SLOW, 3: RAISED})
    said = [str(warning.message) for warning in caught]
    assert len(said) == 2
    assert said[0].startswith("reward.function failed on a rollout")
    assert said[0].endswith("train/reward/failed_error: ValueError: no such unit")
    assert said[1].endswith("train/reward/failed_timeout: no reply within 2 s")


def test_the_share_of_all_and_of_each_status() -> None:
    assert failure_metrics({0: RAISED, 3: SLOW}, 4) == {
        "reward/failed": 0.5,
        "reward/failed_timeout": 0.25,
        "reward/failed_error": 0.25,
    }


def test_as_many_as_allowed_are_no_reason_to_stop_and_one_more_is() -> None:
    refuse_too_many({0: RAISED}, 4, limit=0.25)
    with pytest.raises(RewardFailed, match=r"failed on 2 of 4 rollouts \(50%\), .* the first: error, ValueError"):
        refuse_too_many({0: RAISED, 1: SLOW}, 4, limit=0.25)

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

from contrastive_reasoning.distributed import this_rank
from contrastive_reasoning.rewards.base import FailureWarning, refuse_too_many
from contrastive_reasoning.tasks.base import Verdict
from contrastive_reasoning.workers.failures import RewardFailed
from tests.two_ranks import on_ranks

RAISED = Verdict(status="error", reason="ValueError: no such unit")
SLOW = Verdict(status="timeout", reason="no reply within 2 s")


def test_failure_warning_warns_once_per_status() -> None:
    warned = FailureWarning("reward.function")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warned({0: RAISED, 1: RAISED})
        warned({2: SLOW, 3: RAISED})
    messages = [str(warning.message) for warning in caught]
    assert len(messages) == 2
    assert messages[0].startswith("reward.function failed on a rollout")
    assert messages[0].endswith("train/reward/failed_error: ValueError: no such unit")
    assert messages[1].endswith("train/reward/failed_timeout: no reply within 2 s")


def _error_message(*failed_on_rank: int) -> str:
    """Returns the error message on this rank, of whose four rollouts the given number failed, or ""."""
    failures = dict.fromkeys(range(failed_on_rank[this_rank()]), RAISED if this_rank() else SLOW)
    try:
        refuse_too_many(failures, 4, limit=0.25)
    except RewardFailed as error:
        return str(error)
    return ""


@pytest.mark.whole
def test_refuse_too_many_pools_ranks_and_raises_on_each_rank(tmp_path: Path) -> None:
    assert on_ranks(_error_message, tmp_path, 0, 2) == ["", ""], "a quarter of all, though half of the one rank's"
    first, second = on_ranks(_error_message, tmp_path, 0, 3)
    assert first == second
    assert re.search(r"3 of 8 .*38%.*error, ValueError: no such unit$", first)

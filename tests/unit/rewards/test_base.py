from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from contrastive_reasoning.distributed import this_rank
from contrastive_reasoning.rewards.base import (
    ALL,
    FEWEST,
    MOST,
    ErrorShare,
    FailureWarning,
    RewardFailed,
    VerifierFailed,
    refuse_too_many,
)
from contrastive_reasoning.tasks.base import Verdict
from tests.two_ranks import on_ranks

RAISED = Verdict(status="error", reason="ValueError: no such unit")
SLOW = Verdict(status="timeout", reason="no reply within 2 s")
RIGHT = Verdict(status="ok", reason="")


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
    """Returns the error message on this rank, "" without an error.

    Each rank has four rollouts, of which the given number failed.
    """
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
    assert first.startswith("the reward failed on 3 of 8 rollouts (38%)")
    assert first.endswith("the first: error, ValueError: no such unit")


def add_in_batches(errors: ErrorShare, verdicts: list[Verdict], size: int) -> None:
    """Adds ``size`` verdicts at a time."""
    for begin in range(0, len(verdicts), size):
        errors.add(verdicts[begin : begin + size])


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_error_share_does_not_depend_on_batch_size(size: int) -> None:
    add_in_batches(ErrorShare(0.2, of="answers", key="max_failures"), [*[RIGHT] * 4, RAISED] * 100, size)
    errors = ErrorShare(0.2, of="answers", key="max_failures")
    with pytest.raises(VerifierFailed, match=r"^the verifier failed on 5 of the last 20 answers") as raised:
        add_in_batches(errors, [RAISED, *[RIGHT] * 3] * 5 + [RIGHT] * 180, size)
    assert str(raised.value).endswith("more than max_failures=0.2 allows; the last time: ValueError: no such unit")


def test_error_share_ignores_errors_before_last_thousand_verdicts() -> None:
    errors = ErrorShare(0.1, of="answers", key="max_failures")
    errors.add([RIGHT] * (MOST - 100) + [RAISED] * 100)
    errors.add([RIGHT] * (MOST - 50) + [RAISED] * 50)  # a third of all errors so far
    errors.add([RAISED] * 50)
    with pytest.raises(VerifierFailed, match="failed on 101 of the last 1000 answers"):
        errors.add([RAISED])


def test_error_share_ignores_timeouts_and_needs_twenty_verdicts() -> None:
    errors = ErrorShare(0.0, of="answers", key="max_failures")
    errors.add([SLOW] * (FEWEST - 2) + [RAISED])
    with pytest.raises(VerifierFailed, match="failed on 2 of the last 20 answers"):
        errors.add([RAISED])


def test_error_share_raises_after_four_verdicts_if_all_are_errors() -> None:
    errors = ErrorShare(0.2, of="answers", key="max_failures")
    errors.add([RAISED] * (ALL - 1))
    with pytest.raises(VerifierFailed, match="failed on 4 of the last 4 answers"):
        errors.add([RAISED])
    allowed = ErrorShare(1.0, of="answers", key="max_failures")
    allowed.add([RAISED] * 50)

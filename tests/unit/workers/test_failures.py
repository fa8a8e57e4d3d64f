from __future__ import annotations

import pytest

from contrastive_reasoning.tasks.base import Verdict
from contrastive_reasoning.workers.failures import ALL, FEWEST, MOST, ErrorShare, VerifierFailed

RAISED = Verdict(status="error", reason="ValueError: no such unit")
SLOW = Verdict(status="timeout", reason="no reply within 2 s")
RIGHT = Verdict(status="ok", reason="")


def add_in_batches(errors: ErrorShare, verdicts: list[Verdict], size: int) -> None:
    """Adds ``size`` verdicts at a time."""
    for begin in range(0, len(verdicts), size):
        errors.add(verdicts[begin : begin + size])


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_error_share_does_not_depend_on_batch_size(size: int) -> None:
    add_in_batches(ErrorShare(0.2, of="answers", key="max_failures"), [*[RIGHT] * 4, RAISED] * 100, size)
    errors = ErrorShare(0.2, of="answers", key="max_failures")
    with pytest.raises(VerifierFailed, match=r"5 .* 20 answers.* max_failures=0\.2 .*no such unit$"):
        add_in_batches(errors, [RAISED, *[RIGHT] * 3] * 5 + [RIGHT] * 180, size)


def test_error_share_ignores_errors_before_last_thousand_verdicts() -> None:
    errors = ErrorShare(0.1, of="answers", key="max_failures")
    errors.add([RIGHT] * (MOST - 100) + [RAISED] * 100)
    errors.add([RIGHT] * (MOST - 50) + [RAISED] * 50)  # a third of all errors so far
    errors.add([RAISED] * 50)
    with pytest.raises(VerifierFailed, match=r"101 .* 1000 answers"):
        errors.add([RAISED])


def test_error_share_ignores_timeouts_and_needs_twenty_verdicts() -> None:
    errors = ErrorShare(0.0, of="answers", key="max_failures")
    errors.add([SLOW] * (FEWEST - 2) + [RAISED])
    with pytest.raises(VerifierFailed, match=r" 2 .* 20 answers"):
        errors.add([RAISED])


def test_error_share_raises_after_four_verdicts_if_all_are_errors() -> None:
    errors = ErrorShare(0.2, of="answers", key="max_failures")
    errors.add([RAISED] * (ALL - 1))
    with pytest.raises(VerifierFailed, match=r" 4 .* 4 answers"):
        errors.add([RAISED])
    allowed = ErrorShare(1.0, of="answers", key="max_failures")
    allowed.add([RAISED] * 50)

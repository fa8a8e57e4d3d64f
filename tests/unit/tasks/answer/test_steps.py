from __future__ import annotations

import sys
from itertools import count

import pytest

from contrastive_reasoning.tasks.answer.steps import OutOfSteps, within


def called(times: int) -> int:
    def one() -> int:
        return 1

    return sum(one() for _ in range(times))


def for_ever() -> None:
    for number in count():
        try:
            called(number)
        except Exception:  # what the limit must get past
            continue


def test_a_budget_that_suffices_changes_nothing() -> None:
    assert within(1000, lambda: called(10)) == 10


def test_work_without_end_is_stopped_though_it_catches_exceptions() -> None:
    with pytest.raises(OutOfSteps):
        within(1000, for_ever)


def test_what_traced_before_traces_again() -> None:
    before = sys.gettrace()
    for budget in (1000, 1):
        try:
            within(budget, lambda: called(10))
        except OutOfSteps:
            assert budget == 1
        assert sys.gettrace() is before

"""States as fixed-width rows."""

from __future__ import annotations

import pytest

from contrastive_reasoning.tasks.countdown.encoding import encode_state


def test_descending_and_padded() -> None:
    assert encode_state((17, 0, 26)) == [26, 17, 0, -1, -1, -1]
    assert encode_state(()) == [-1] * 6


def test_too_many_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="at most 6 numbers, got 7"):
        encode_state(range(7))


@pytest.mark.parametrize("number", [-1, 10000])
def test_numbers_without_four_digits_are_refused(number: int) -> None:
    with pytest.raises(ValueError, match="lie in 0 … 9999"):
        encode_state([number, 3])

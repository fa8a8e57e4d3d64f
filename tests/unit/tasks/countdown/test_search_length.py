"""The length against the written search itself."""

from __future__ import annotations

import random

import pytest

from contrastive_reasoning.tasks.countdown.oracle import reachable
from contrastive_reasoning.tasks.countdown.search_length import search_lines
from contrastive_reasoning.tasks.countdown.trace import search_trace


def test_lines_are_those_of_the_written_search() -> None:
    rng = random.Random(2)
    for _ in range(60):
        numbers = tuple(rng.randint(0, 60) for _ in range(rng.randint(2, 4)))
        target = rng.randint(0, 60)
        lines = search_lines(numbers, target)
        assert (lines is not None) == reachable(numbers, target)
        if lines is None:
            continue
        written = search_trace(numbers, target).text.split("\n\n")[0].split("\n")[1:]
        assert lines == len(written)
        assert search_lines(numbers, target, limit=lines) == lines
        assert search_lines(numbers, target, limit=lines - 1) is None


def test_lines_of_one_number_are_refused() -> None:
    with pytest.raises(ValueError, match="two or more"):
        search_lines((4,), 4)

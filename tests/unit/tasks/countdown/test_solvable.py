"""One question about one problem against the oracle, which answers for all targets."""

from __future__ import annotations

import random

import pytest

from contrastive_reasoning.tasks.countdown.oracle import reachable
from contrastive_reasoning.tasks.countdown.solvable import solvable

NUMBERS = (0, 0, 1, 1, 2, 3, 5, 8, 13, 25, 44, 60, 999, 1999, 2000, 2500)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_says_what_the_oracle_says(count: int) -> None:
    rng = random.Random(count)
    answers = []
    for _ in range(12):
        numbers = [rng.choice(NUMBERS) for _ in range(count)]
        for target in (-1, 0, 1, *range(2, 60, 3), numbers[0], 1999, 2000, 2500):
            answers.append(solvable(numbers, target))
            assert answers[-1] == reachable(numbers, target), (numbers, target)
    assert {True, False} == set(answers)


@pytest.mark.parametrize("numbers", [(), (3, -1)])
def test_refuses_what_the_oracle_refuses(numbers: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="one or more integers"):
        solvable(numbers, 3)

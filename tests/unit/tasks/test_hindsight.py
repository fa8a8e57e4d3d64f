from __future__ import annotations

import random
from collections import Counter

import pytest

from contrastive_reasoning.tasks.hindsight import draw_future


def future_probabilities(moments: int, *, discount: float) -> list[list[float]]:
    """The module's picture: row i holds p(j | i); the last row is zero."""
    rows = [[discount ** (j - i - 1) if j > i else 0.0 for j in range(moments)] for i in range(moments)]
    return [[weight / (sum(row) or 1.0) for weight in row] for row in rows]


def test_probabilities_are_the_picture() -> None:
    half = future_probabilities(5, discount=0.5)
    assert half[2] == [0, 0, 0, pytest.approx(2 / 3), pytest.approx(1 / 3)]
    assert half[0][1:] == [pytest.approx(weight / 15) for weight in (8, 4, 2, 1)]
    assert half[4] == [0] * 5
    assert future_probabilities(5, discount=1.0)[1] == [
        0,
        0,
        pytest.approx(1 / 3),
        pytest.approx(1 / 3),
        pytest.approx(1 / 3),
    ]


@pytest.mark.parametrize("discount", [1.0, 0.9, 0.3, 1e-6])
def test_draws_follow_the_probabilities(discount: float) -> None:
    rng, draws = random.Random(0), 6_000
    drawn = Counter(draw_future(1, 5, discount=discount, rng=rng) for _ in range(draws))
    expected = future_probabilities(5, discount=discount)[1]
    for moment, probability in enumerate(expected):
        assert drawn[moment] / draws == pytest.approx(probability, abs=0.025)


def test_refuses_what_has_no_future() -> None:
    with pytest.raises(ValueError, match="moment 4 of 5 has no future"):
        draw_future(4, 5, discount=1.0, rng=random.Random(0))
    with pytest.raises(ValueError, match=r"discount must lie in \(0, 1\], got 0"):
        draw_future(0, 5, discount=0.0, rng=random.Random(0))

"""Even shares compared with all possible divisions."""

from __future__ import annotations

import itertools
import random

import pytest

from contrastive_reasoning.distributed import even_shares


def largest(costs: list[int], shares: list[list[int]]) -> int:
    return max(sum(costs[place] for place in share) for share in shares)


def test_even_shares_have_equal_size_and_never_increase_largest_cost() -> None:
    draw, moved = random.Random(0), 0
    for _ in range(300):
        count = draw.choice((1, 2, 3, 8))
        length = count * draw.randint(1, 12 if count != 2 else 5)
        costs = [draw.choice([0, draw.randint(0, 9), draw.randint(0, 50)]) for _ in range(length)]
        shares, every = even_shares(costs, count), [list(range(first, length, count)) for first in range(count)]
        assert sorted(place for share in shares for place in share) == list(range(length))
        assert [len(share) for share in shares] == [length // count] * count
        assert all(share == sorted(share) for share in shares)
        assert shares == every or largest(costs, shares) < largest(costs, every)
        moved += shares != every
        if count == 2:
            halves = itertools.combinations(range(length), length // 2)
            sums = (sum(costs[place] for place in half) for half in halves)
            assert largest(costs, shares) <= 4 / 3 * min(max(half, sum(costs) - half) for half in sums)
    assert moved > 100


def test_even_shares_separates_large_costs() -> None:
    assert even_shares([9, 1, 9, 1, 0, 5, 0, 5], 2) == [[0, 1, 4, 5], [2, 3, 6, 7]]
    assert even_shares([9, 9, 1, 1], 2) == [[0, 2], [1, 3]]
    with pytest.raises(ValueError, match=r"5 .*2"):
        even_shares([1, 2, 3, 4, 5], 2)

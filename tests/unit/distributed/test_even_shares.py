"""Even shares against all ways to share."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest

from contrastive_reasoning.distributed import even_shares


def drawn(most: int, counts: tuple[int, ...]) -> Iterator[tuple[list[int], int]]:
    """Costs, many of them 0, as groups of equals are; and how many shares."""
    draw = random.Random(0)
    for _ in range(300):
        count = draw.choice(counts)
        length = count * draw.randint(1, most)
        yield [draw.choice([0, draw.randint(0, 9), draw.randint(0, 50)]) for _ in range(length)], count


def every_rth(costs: list[int], count: int) -> list[list[int]]:
    return [list(range(first, len(costs), count)) for first in range(count)]


def largest(costs: list[int], shares: list[list[int]]) -> int:
    return max(sum(costs[place] for place in share) for share in shares)


def test_every_place_is_in_one_share_and_shares_are_as_long() -> None:
    for costs, count in drawn(12, (1, 2, 3, 8)):
        shares = even_shares(costs, count)
        assert sorted(place for share in shares for place in share) == list(range(len(costs)))
        assert [len(share) for share in shares] == [len(costs) // count] * count
        assert all(share == sorted(share) for share in shares)


def test_places_move_only_where_the_largest_share_becomes_smaller() -> None:
    moved = 0
    for costs, count in drawn(12, (2, 3, 8)):
        shares, every = even_shares(costs, count), every_rth(costs, count)
        assert shares == every or largest(costs, shares) < largest(costs, every)
        moved += shares != every
    assert moved > 200


def test_the_larger_of_two_is_at_most_a_third_above_the_best() -> None:
    for costs, _ in drawn(5, (2,)):
        halves = itertools.combinations(range(len(costs)), len(costs) // 2)
        sums = (sum(costs[place] for place in half) for half in halves)
        best = min(max(half, sum(costs) - half) for half in sums)
        assert largest(costs, even_shares(costs, 2)) <= 4 / 3 * best


def test_large_ones_are_kept_apart() -> None:
    assert even_shares([9, 1, 9, 1, 0, 5, 0, 5], 2) == [[0, 1, 4, 5], [2, 3, 6, 7]]
    assert even_shares([9, 9, 1, 1], 2) == [[0, 2], [1, 3]]


def test_uneven_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="5 costs cannot be shared out evenly over 2"):
        even_shares([1, 2, 3, 4, 5], 2)

"""Shares of as many things each, whose costs add up to nearly the same."""

from __future__ import annotations

from collections.abc import Sequence


def even_shares(costs: Sequence[int], count: int) -> list[list[int]]:
    """The places of ``costs`` in ``count`` shares, as many in each, in ascending order.

    The largest first, each to the share that has least and still has room. Every R-th place, as ``share`` has it, is
    kept where the largest sum would not become smaller by that.

    Raises:
        ValueError: where they cannot be shared out evenly.
    """
    if len(costs) % count:
        raise ValueError(f"{len(costs)} costs cannot be shared out evenly over {count}")
    room = len(costs) // count
    shares: list[list[int]] = [[] for _ in range(count)]
    sums = [0] * count
    for place in sorted(range(len(costs)), key=lambda place: (-costs[place], place)):
        least = min((i for i in range(count) if len(shares[i]) < room), key=lambda i: (sums[i], i))
        shares[least].append(place)
        sums[least] += costs[place]
    every = [list(range(first, len(costs), count)) for first in range(count)]
    if max(sum(costs[place] for place in part) for part in every) <= max(sums):
        return every
    return [sorted(part) for part in shares]

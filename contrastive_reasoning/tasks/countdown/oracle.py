"""The exact oracle: which targets a state can still reach, and which moves keep a target reachable.

The reachable numbers of a state are the bits of one Python integer, R(S) = ∪ over legal moves of R(S after the move),
memoised on the sorted multiset. Two numbers use a table of bits; three numbers reduce to at most twelve pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from contrastive_reasoning.tasks.countdown.game import (
    MAX_RESULT,
    Move,
    checked_numbers,
    legal_moves,
    pair_indices,
    results,
)

CACHED_STATES = 1 << 16
"""About 0.5 KB each: the cache stays below 40 MB."""

_BIT = [1 << result for result in range(MAX_RESULT)]


def reachable(numbers: Sequence[int], target: int) -> bool:
    """Whether some sequence of legal moves uses all numbers and ends in the target.

    A single number reaches itself, even if it is ≥ 2000. From two or more numbers no target ≥ 2000 is reachable.

    Raises:
        ValueError: if there are no numbers, or one is negative.
    """
    state = checked_numbers(numbers)
    if len(state) == 1:
        return state[0] == target
    return 0 <= target < MAX_RESULT and bool(_reachable_bits(state) >> target & 1)


def reachable_targets(numbers: Sequence[int]) -> frozenset[int]:
    """All targets that the state can reach; raises a ValueError if there are no numbers, or one is negative."""
    state = checked_numbers(numbers)
    if len(state) == 1:
        return frozenset(state)
    bits = _reachable_bits(state)
    return frozenset([target for target in range(bits.bit_length()) if bits >> target & 1])


def best_moves(numbers: Sequence[int], target: int) -> list[Move]:
    """The legal moves after which the target is still reachable, in the game's order; empty for a single number."""
    return [move for move in legal_moves(checked_numbers(numbers)) if reachable(move.state, target)]


def _reachable_bits(state: tuple[int, ...]) -> int:
    """Bit r is set if two or more numbers can reach r."""
    state = tuple(sorted(state, reverse=True))
    return _of_two(*state) if len(state) == 2 else _of_many(state)


@lru_cache(maxsize=CACHED_STATES)
def _of_many(state: tuple[int, ...]) -> int:
    """Bits of the reachable numbers of three or more numbers, sorted descending."""
    if len(state) == 3:
        return _of_three(*state)
    bits = 0
    for child in {
        tuple(sorted([result, *[state[k] for k in rest]], reverse=True))
        for i, j, rest in pair_indices(len(state))
        for result in results(state[i], state[j])
    }:
        bits |= _of_many(child)
    return bits


def _of_three(a: int, b: int, c: int) -> int:
    """Bits of the reachable numbers of a ≥ b ≥ c: combines each result of a pair with the remaining number."""
    bits = 0
    for result in results(a, b):
        bits |= _of_two(result, c)
    for result in results(a, c):
        bits |= _of_two(result, b)
    for result in results(b, c):
        bits |= _of_two(result, a)
    return bits


def _of_two(a: int, b: int) -> int:
    """Bits of the at most four results of two numbers."""
    bits = 0
    for result in results(a, b):
        bits |= _BIT[result]
    return bits

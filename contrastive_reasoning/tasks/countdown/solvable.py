"""Whether one problem can be solved, asked once: no memory, no other target, an end at the first solution.

The oracle answers for all targets of a state and remembers them, which pays where states come again. A problem that is
drawn at random never does, and a state reaches its target by many ways or by none.
"""

from __future__ import annotations

from collections.abc import Sequence

from contrastive_reasoning.tasks.countdown.game import MAX_RESULT, checked_numbers, pair_indices, results
from contrastive_reasoning.tasks.countdown.oracle import reachable


def solvable(numbers: Sequence[int], target: int) -> bool:
    """What ``reachable`` says. From five numbers on it is asked: their searches meet the same states again and again.

    Raises:
        ValueError: on no numbers or negative ones.
    """
    state = checked_numbers(numbers)
    if len(state) == 1 or len(state) > 4:
        return reachable(state, target)
    return 0 <= target < MAX_RESULT and _gives(state, target)


def _gives(state: tuple[int, ...], target: int) -> bool:
    """Two to four numbers."""
    if len(state) == 2:
        return _two_give(state[0], state[1], target)
    if len(state) == 3:
        return _three_give(state[0], state[1], state[2], target)
    return any(
        _three_give(result, state[rest[0]], state[rest[1]], target)
        for i, j, rest in pair_indices(4)
        for result in results(state[i], state[j])
    )


def _three_give(a: int, b: int, c: int, target: int) -> bool:
    for x, y, left in ((a, b, c), (a, c, b), (b, c, a)):
        for result in results(x, y):
            if _two_give(result, left, target):
                return True
    return False


def _two_give(a: int, b: int, target: int) -> bool:
    """Whether one operation on the two numbers gives the target, which is in 0 … ``MAX_RESULT`` − 1."""
    if a < b:
        a, b = b, a
    return a + b == target or a - b == target or a * b == target or (b > 0 and a == target * b)

"""The written search in a drawn order: the lines of LongProc's search, whichever pair and operation come first.

LongProc's search takes pairs in list order and ``+ - * /`` on each, so nothing is left to choose. Here both orders are
drawn anew in every state; the rest is as in ``trace.py``: depth first, every result legal or dropped with its reason,
an end at the first solution. It is written line by line, without the forms that make the fixed order fast.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from contrastive_reasoning.tasks.countdown.attempts import attempts
from contrastive_reasoning.tasks.countdown.game import checked_numbers, pair_indices
from contrastive_reasoning.tasks.countdown.oracle import reachable
from contrastive_reasoning.tasks.countdown.search import unsolvable
from contrastive_reasoning.tasks.countdown.trace import Trace
from contrastive_reasoning.tasks.countdown.triples import wording_of
from contrastive_reasoning.tasks.countdown.wording import Wording, closing


def shuffled_trace(numbers: Sequence[int], target: int, *, style: str, rng: random.Random) -> Trace:
    """The search for one problem as text, its pairs and operations in an order drawn for each state.

    Args:
        numbers: two or more numbers ≥ 0 in the order they are shown.
        target: the number to reach.
        style: ``longproc`` or ``annotated``.
        rng: shuffles the pairs of each state and the operations of each pair.

    Raises:
        ValueError: on another style, fewer than two numbers, or a target that cannot be reached.
    """
    wording, numbers = wording_of(style), checked_numbers(numbers)
    if len(numbers) < 2:
        raise ValueError(f"a trace needs two or more numbers, got {list(numbers)}")
    if not reachable(numbers, target):
        raise ValueError(unsolvable(numbers, target))
    search = _Search(target=target, wording=wording, rng=rng, lines=[wording.opening(list(numbers), target)])
    search.explore(list(numbers), 0)
    return Trace("\n".join(search.lines) + wording.end + closing(search.solution), tuple(search.solution))


@dataclass(kw_only=True)
class _Search:
    """What is written so far, and the equations on the way to the target once it is found."""

    target: int
    wording: Wording
    rng: random.Random
    lines: list[str]
    solution: list[str] = field(default_factory=list)

    def explore(self, state: list[int], level: int) -> bool:
        """Writes the search under ``state``; True as soon as the target is found."""
        pairs = list(pair_indices(len(state)))
        self.rng.shuffle(pairs)
        for i, j, rest in pairs:
            left = [state[k] for k in rest]
            if left:  # two numbers are not picked from, their results are compared with the target
                self.lines.append(self.wording.pick(level + 1, state, state[i], state[j], left))
            operations = list(attempts(state[i], state[j]))
            self.rng.shuffle(operations)
            below = level + 2 if left else level + 1
            if any(self._attempt(result, equation, state, left, below) for result, equation in operations):
                return True
        return False

    def _attempt(self, result: int | None, equation: str, state: list[int], left: list[int], level: int) -> bool:
        """Writes one operation, and what comes under it."""
        if result is None:
            self.lines.append(self.wording.drop(level, equation, state))
            return False
        self.solution.append(equation)
        if self._last(result, equation, level) if not left else self._descend(equation, [result, *left], level):
            return True
        self.solution.pop()
        return False

    def _last(self, result: int, equation: str, level: int) -> bool:
        found = result == self.target
        wording = self.wording
        self.lines.append(
            wording.found(level, equation, self.target) if found else wording.miss(level, equation, result, self.target)
        )
        return found

    def _descend(self, equation: str, state: list[int], level: int) -> bool:
        self.lines.append(self.wording.add(level, equation, state, self.target))
        return self.explore(state, level)

"""Generates problems: each draw is a function of (seed, split, index), and a problem's key determines its split."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from contrastive_reasoning.ranges import at_least, range_from
from contrastive_reasoning.tasks.base import Split, distinct, make_tuples, split_of
from contrastive_reasoning.tasks.countdown.oracle import reachable
from contrastive_reasoning.tasks.countdown.problem import Pair, problem_key
from contrastive_reasoning.tasks.countdown.search import search_lines

_ATTEMPTS = 100_000
"""Maximum number of attempts for one draw; after them the space counts as exhausted."""


@dataclass(frozen=True, kw_only=True)
class ProblemSpace:
    """The distribution of problems: a count out of ``counts``, and numbers and target uniform in [lowest, highest].

    The distribution is conditioned on the problem being solvable within ``max_search_lines``.
    """

    counts: Sequence[int]
    number_range: Sequence[int]
    target_range: Sequence[int]
    max_search_lines: int | None
    """Maximum length of the written search in lines under the header; None: any. LongProc's 0.5k set has 6 to 13 lines,
    its 2k set 34 to 69."""

    def __post_init__(self) -> None:
        make_tuples(self, "counts", "number_range", "target_range")
        if not self.counts or not all(2 <= count <= 6 for count in self.counts):
            raise ValueError(f"counts must be one or more of 2 to 6, got {list(self.counts)}")
        range_from(0, number_range=self.number_range, target_range=self.target_range)
        if self.max_search_lines is not None:
            at_least(1, max_search_lines=self.max_search_lines)

    def sample(self, rng: random.Random) -> Pair:
        """Draws numbers and a target, solvable or not."""
        count = self.counts[_below(len(self.counts), rng)]
        low, high = self.number_range
        lowest, highest = self.target_range
        numbers = tuple([low + _below(high - low + 1, rng) for _ in range(count)])
        return numbers, lowest + _below(highest - lowest + 1, rng)

    def admits(self, numbers: Sequence[int], target: int) -> bool:
        """Whether the problem is solvable within ``max_search_lines``."""
        if self.max_search_lines is None:
            return reachable(numbers, target)
        return search_lines(numbers, target, limit=self.max_search_lines) is not None


def _below(bound: int, rng: random.Random) -> int:
    """Returns the same draws as ``rng.randrange(bound)``, without its checks: three quarters of its time."""
    bits = bound.bit_length()
    number = rng.getrandbits(bits)
    while number >= bound:
        number = rng.getrandbits(bits)
    return number


def draw(space: ProblemSpace, *, seed: int, split: Split, index: int, exclude: Collection[str]) -> Pair:
    """Returns draw ``index`` of a split, a problem whose key is not excluded. Two indices may give the same problem.

    Raises:
        ValueError: if a hundred thousand attempts find no problem.
    """
    # a string seed is hashed with SHA-512, so the draw is the same in every process, for any PYTHONHASHSEED
    rng = random.Random(f"countdown/{seed}/{split}/{index}")
    for _ in range(_ATTEMPTS):
        numbers, target = space.sample(rng)
        key = problem_key(numbers, target)
        if split_of(key) == split and key not in exclude and space.admits(numbers, target):
            return numbers, target
    raise ValueError(f"{space} holds no {split} problem that {_ATTEMPTS} attempts would find")


def draw_distinct(space: ProblemSpace, *, seed: int, split: Split, exclude: Collection[str]) -> Iterator[Pair]:
    """Yields the draws 0, 1, 2, … of a split without repeated problems; raises a ValueError when there are no more."""
    draws = (draw(space, seed=seed, split=split, index=index, exclude=exclude) for index in count())
    return distinct(draws, lambda pair: problem_key(*pair), space=space, what=f"{split} problems")

"""Trajectories of random play, and what a search with exhaustion learns under one state of each.

A trajectory starts from random numbers and makes random legal moves down to its anchor state. From there the search
goes on: at once if the anchor is small enough, else after further random moves into one branch. Every value the search
ends in is reached from the anchor, failed branches included; and if the anchor itself was exhausted, every other value
is a certified dead end.

    start (a, b, c, d) ──random──► anchor (a·b, c, d) ──every line of play──► {reached}      the rest: dead ends
    start (a, b, c, d) = anchor ──random──► (a·b, c, d) ──every line──► {reached}             the rest: unknown
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int
from numpy import ndarray

from contrastive_reasoning.tasks.countdown.encoding import WIDTH
from datamodules.random_play import random_move, reached_values


@dataclass(frozen=True, kw_only=True)
class Plays:
    """A anchors of the same number of numbers, one from each of A trajectories."""

    anchors: Int[ndarray, "A K"]
    reached: Bool[ndarray, "A V"]
    """Values known to be reachable from the anchor."""
    exhausted: bool
    """Whether what is not in ``reached`` is known to be out of reach."""


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """States, as multisets of numbers, that no trajectory may start from or have as its anchor, whatever its target."""

    keys: Int[ndarray, " H"]
    """Sorted."""

    @classmethod
    def of(cls, states: Collection[Sequence[int]]) -> HeldOut:
        """Args: the numbers of each state, in any order; states may differ in size."""
        by_size: dict[int, list[Sequence[int]]] = {}
        for state in states:
            by_size.setdefault(len(state), []).append(state)
        keys = [_keys(np.array(boards)) for boards in by_size.values()]
        return cls(keys=np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *keys])))

    def contains(self, boards: Int[ndarray, "N K"]) -> Bool[ndarray, " N"]:
        keys = _keys(boards)
        place = np.searchsorted(self.keys, keys).clip(max=max(0, len(self.keys) - 1))
        return self.keys[place] == keys if len(self.keys) else np.zeros(len(keys), dtype=bool)


def draw_anchors(
    count: int,
    *,
    numbers: int,
    number_range: tuple[int, int],
    moves: int,
    held_out: HeldOut,
    rng: np.random.Generator,
) -> Int[ndarray, "A K"]:
    """Where ``count`` trajectories stand after random play from uniform numbers; held-out ones are drawn again.

    Args:
        count: A.
        numbers: how many a trajectory starts from.
        number_range: lowest and highest starting number.
        moves: random legal moves to the anchor, fewer than there are numbers.
        held_out: neither starts nor anchors are among them.
        rng: the only source of chance.

    Raises:
        ValueError: if a hundred draws are not enough: nearly everything in the range is held out.
    """
    kept: list[Int[ndarray, "N K"]] = []
    missing = count
    for _ in range(100):
        low, high = number_range
        boards = rng.integers(low, high + 1, (missing, numbers))
        allowed = ~held_out.contains(boards)
        for _ in range(moves):
            boards = random_move(boards, rng)
        kept.append(boards[allowed & ~held_out.contains(boards)])
        missing -= len(kept[-1])
        if not missing:
            return np.concatenate(kept)
    raise ValueError(f"nearly all plays of {numbers} numbers in {number_range} are held out: widen number_range")


def search_under(anchors: Int[ndarray, "A K"], *, exhaust_up_to: int, rng: np.random.Generator) -> Plays:
    """What is learnt under each anchor: by exhausting it, or one random branch of it where it is too large for that.

    Args:
        anchors: A states of K numbers.
        exhaust_up_to: the most numbers a board may have for its search to be exhausted.
        rng: the only source of chance.
    """
    branch = anchors
    while branch.shape[1] > exhaust_up_to:
        branch = random_move(branch, rng)
    return Plays(anchors=anchors, reached=reached_values(branch), exhausted=branch is anchors)


def _keys(boards: Int[ndarray, "N K"]) -> Int[ndarray, " N"]:
    """One integer a multiset: unique for up to five numbers below 2,047 and six below 1,023.

    Larger ones may share a key, which holds out too much, never too little.
    """
    rows = np.sort(boards, axis=1).astype(np.int64) + 1
    shift = 10 if rows.shape[1] == WIDTH else 11
    return (rows << (shift * np.arange(rows.shape[1]))).sum(axis=1)

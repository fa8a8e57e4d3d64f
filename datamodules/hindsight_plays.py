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
    """Sets of starting numbers that no trajectory may start from, whatever its target."""

    keys: Int[ndarray, " H"]

    @classmethod
    def of(cls, numbers: Collection[Sequence[int]]) -> HeldOut:
        """Args: the starting numbers of the held-out problems, in any order."""
        by_size: dict[int, list[Sequence[int]]] = {}
        for each in numbers:
            by_size.setdefault(len(each), []).append(each)
        keys = [_keys(np.array(boards)) for boards in by_size.values()]
        return cls(keys=np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *keys])))

    def contains(self, boards: Int[ndarray, "N K"]) -> Bool[ndarray, " N"]:
        return np.isin(_keys(boards), self.keys)


def draw_starts(
    count: int, *, numbers: int, number_range: tuple[int, int], held_out: HeldOut, rng: np.random.Generator
) -> Int[ndarray, "N K"]:
    """Uniform starting numbers; a start that is held out is drawn again.

    Raises:
        ValueError: if a hundred draws leave some row held out: the range is too small for what is held out.
    """
    low, high = number_range
    boards = rng.integers(low, high + 1, (count, numbers))
    for _ in range(100):
        again = held_out.contains(boards)
        if not again.any():
            return boards
        boards[again] = rng.integers(low, high + 1, (int(again.sum()), numbers))
    raise ValueError(f"nearly all {numbers}-number starts in {low}..{high} are held out: widen number_range")


def play(starts: Int[ndarray, "A K"], *, moves: int, exhaust_up_to: int, rng: np.random.Generator) -> Plays:
    """Random play to the anchors, then the search under them.

    Args:
        starts: the trajectories' starting numbers.
        moves: random legal moves to the anchor, fewer than there are numbers.
        exhaust_up_to: the most numbers a board may have for its search to be exhausted.
        rng: the only source of chance.
    """
    anchors = starts
    for _ in range(moves):
        anchors = random_move(anchors, rng)
    branch = anchors
    while branch.shape[1] > exhaust_up_to:
        branch = random_move(branch, rng)
    return Plays(anchors=anchors, reached=reached_values(branch), exhausted=branch is anchors)


def _keys(boards: Int[ndarray, "N K"]) -> Int[ndarray, " N"]:
    """One integer a multiset of numbers below 1,023: unique for up to six numbers."""
    rows = np.sort(boards, axis=1).astype(np.int64) + 1
    return (rows << (10 * np.arange(rows.shape[1]))).sum(axis=1)

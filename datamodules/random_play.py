"""Countdown played for many boards at once: children, random legal moves, exhaustion. The rules are the game's own.

Boards are integer arrays of K numbers a row. A child that the rules forbid is a row of −1, and so is all that grows
from it. The plain functions of ``contrastive_reasoning.tasks.countdown`` are the law; the test compares board by board.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from jaxtyping import Bool, Int
from numpy import ndarray

from contrastive_reasoning.tasks.countdown.game import MAX_RESULT

VALUES = MAX_RESULT
"""Every number a legal move can make is in 0 … VALUES − 1."""


def children(boards: Int[ndarray, "N K"]) -> Int[ndarray, "N M K-1"]:
    """The M = 4·K(K−1)/2 boards one move away, the new number first; forbidden ones are rows of −1.

    Two equal children (two ways to the same board) both stand, as the game lists both moves.
    """
    rows = [_children_of_pair(boards, i, j) for i, j in combinations(range(boards.shape[1]), 2)]
    return np.concatenate(rows, axis=1)


def _children_of_pair(boards: Int[ndarray, "N K"], i: int, j: int) -> Int[ndarray, "N 4 K-1"]:
    large, small = np.maximum(boards[:, i], boards[:, j]), np.minimum(boards[:, i], boards[:, j])
    exact = (small > 0) & (large % np.maximum(small, 1) == 0)
    quotient = np.where(exact, large // np.maximum(small, 1), -1)
    results = np.stack([large + small, large - small, large * small, quotient], axis=1)
    legal = (results >= 0) & (results < MAX_RESULT) & (small >= 0)[:, None]
    rest = np.delete(boards, (i, j), axis=1)[:, None, :].repeat(4, axis=1)
    return np.where(legal[..., None], np.concatenate([results[..., None], rest], axis=2), -1)


def random_move(boards: Int[ndarray, "N K"], rng: np.random.Generator) -> Int[ndarray, "N K-1"]:
    """One move of each board, uniform over its legal moves."""
    options = children(boards)
    lots = np.where(options[..., 0] >= 0, rng.random(options.shape[:2]), -1.0)
    return options[np.arange(len(boards)), lots.argmax(axis=1)]


def reached_values(boards: Int[ndarray, "N K"]) -> Bool[ndarray, "N V"]:
    """Every final value under each board, by exhausting its search; what is False is a certified dead end.

    A board of K numbers has up to 48 lines of play at K = 3 and 1,152 at K = 4.
    """
    leaves = boards[:, None, :]
    while leaves.shape[2] > 1:
        leaves = children(leaves.reshape(-1, leaves.shape[2])).reshape(len(boards), -1, leaves.shape[2] - 1)
    reached = np.zeros((len(boards), VALUES + 1), dtype=bool)
    # the last column catches the −1 of forbidden lines and starting numbers beyond the limit
    values = np.where(leaves[..., 0] < VALUES, leaves[..., 0], -1)
    reached[np.arange(len(boards))[:, None], values] = True
    return reached[:, :VALUES]

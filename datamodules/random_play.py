"""Vectorized Countdown for many boards: legal moves, exhaustive search, chances of random play, held-out boards.

Boards are integer arrays of K numbers per row. A child that the rules forbid is a row of −1, and so are all its
descendants. The plain functions of ``contrastive_reasoning.tasks.countdown`` define the rules; the test compares
results board by board.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import combinations

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor

from contrastive_reasoning.tasks.countdown.game import MAX_RESULT
from contrastive_reasoning.tasks.countdown.states import PADDING, WIDTH

VALUES = MAX_RESULT
"""Every result of a legal move is in 0 … VALUES − 1."""


def children(boards: Int[ndarray, "N K"]) -> Int[ndarray, "N M K-1"]:
    """The M = 4·K(K−1)/2 boards one move away, the new number first; forbidden ones are rows of −1.

    Equal children (two ways to the same board) are both included, since the game lists both moves.
    """
    rows = [_children_of_pair(boards, i, j) for i, j in combinations(range(boards.shape[1]), 2)]
    return np.concatenate(rows, axis=1)


def reached_values(boards: Int[ndarray, "N K"]) -> Bool[ndarray, "N V"]:
    """The final values under each board, by exhaustive search; False marks a certified dead end.

    A board of K numbers has up to 48 lines of play at K = 3 and 1,152 at K = 4.
    """
    leaves = boards[:, None, :]
    while leaves.shape[2] > 1:
        leaves = children(leaves.reshape(-1, leaves.shape[2])).reshape(len(boards), -1, leaves.shape[2] - 1)
    reached = np.zeros((len(boards), VALUES + 1), dtype=bool)
    # the last column (index −1) collects forbidden lines and initial numbers beyond the limit
    values = np.where(leaves[..., 0] < VALUES, leaves[..., 0], -1)
    reached[np.arange(len(boards))[:, None], values] = True
    return reached[:, :VALUES]


def play_chances(boards: Int[ndarray, "N K"], targets: Int[ndarray, " N"]) -> Float[ndarray, " N"]:
    """The exact probability that random play from each board ends on the board's own target, by enumeration."""
    leaves, chance = boards[:, None, :], np.ones((len(boards), 1))
    while leaves.shape[2] > 1:
        options = children(leaves.reshape(-1, leaves.shape[2]))
        legal = options[..., 0] >= 0
        share = legal / np.maximum(legal.sum(axis=1, keepdims=True), 1)
        chance = (chance.reshape(-1, 1) * share).reshape(len(boards), -1)
        leaves = options.reshape(len(boards), -1, options.shape[2])
    return (chance * (leaves[..., 0] == targets[:, None])).sum(axis=1)


def keys_of(states: Collection[Sequence[int]]) -> Int[ndarray, " H"]:
    """The distinct keys of states in ascending order. States may differ in size; their number order does not matter."""
    by_size: dict[int, list[Sequence[int]]] = {}
    for state in states:
        by_size.setdefault(len(state), []).append(state)
    keys = [_keys(np.array(boards)) for boards in by_size.values()]
    return np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *keys]))


def is_held_out(boards: Int[ndarray, "N K"], held_out: Int[ndarray, " H"]) -> Bool[ndarray, " N"]:
    """Returns whether the key of each board is in ``held_out``, a result of ``keys_of``."""
    keys = _keys(boards)
    if not len(held_out):
        return np.zeros(len(keys), dtype=bool)
    # not np.isin, which would sort or hash the ascending keys again at every call
    places = np.searchsorted(held_out, keys).clip(max=len(held_out) - 1)
    return held_out[places] == keys


def encode_boards(boards: Int[ndarray, "N K"]) -> Int[Tensor, "N 6"]:
    """Encodes N boards of K ≤ 6 numbers as ``encode_state`` does: descending, padded with −1. Boards may contain −1."""
    rows = -np.sort(-boards.astype(np.int64), axis=1)
    return torch.from_numpy(np.pad(rows, ((0, 0), (0, WIDTH - rows.shape[1])), constant_values=PADDING))


def _children_of_pair(boards: Int[ndarray, "N K"], i: int, j: int) -> Int[ndarray, "N 4 K-1"]:
    large, small = np.maximum(boards[:, i], boards[:, j]), np.minimum(boards[:, i], boards[:, j])
    # numpy divides in every row, also by a 0 or −1 that is no divisor
    exact = (small > 0) & (large % np.maximum(small, 1) == 0)
    quotient = np.where(exact, large // np.maximum(small, 1), -1)
    results = np.stack([large + small, large - small, large * small, quotient], axis=1)
    legal = (results >= 0) & (results < MAX_RESULT) & (small >= 0)[:, None]
    rest = np.delete(boards, (i, j), axis=1)[:, None, :].repeat(4, axis=1)
    return np.where(legal[..., None], np.concatenate([results[..., None], rest], axis=2), -1)


def _keys(boards: Int[ndarray, "N K"]) -> Int[ndarray, " N"]:
    """One integer per multiset, unique for up to five numbers below 2,047 and six below 1,023.

    Multisets of larger numbers may share a key; this can hold out too many states, but never too few.
    """
    rows = np.sort(boards, axis=1).astype(np.int64) + 1
    shift = 10 if rows.shape[1] == WIDTH else 11
    return (rows << (shift * np.arange(rows.shape[1]))).sum(axis=1)

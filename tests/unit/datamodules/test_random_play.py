from __future__ import annotations

import random

import numpy as np

from contrastive_reasoning.tasks.countdown.game import legal_moves
from contrastive_reasoning.tasks.countdown.oracle import reachable_targets
from datamodules.countdown_game import CountdownGame
from datamodules.random_play import children, reached_values
from tests.unit.datamodules.kit import countdown

BOARDS = [
    [random.Random(f"{size}/{row}").choice([0, 1, 2, 7, 24, 49, 1300]) for _ in range(size)]
    for size in (2, 3, 4)
    for row in range(30)
]


def boards(size: int) -> np.ndarray:
    return np.array([board for board in BOARDS if len(board) == size])


def test_children_match_legal_moves_of_each_board() -> None:
    for size in (2, 3, 4):
        for board, options in zip(boards(size), children(boards(size)), strict=True):
            ours = sorted(map(tuple, options[options[:, 0] >= 0].tolist()))
            assert ours == sorted(move.state for move in legal_moves(board.tolist()))


def test_reached_values_match_reachable_targets() -> None:
    for size in (2, 3, 4):
        for board, reached in zip(boards(size), reached_values(boards(size)), strict=True):
            assert frozenset(np.flatnonzero(reached).tolist()) == reachable_targets(board.tolist())


def test_random_moves_are_legal_and_uniform() -> None:
    board = np.array([[1300, 2, 1]]).repeat(20_000, axis=0)
    game = CountdownGame(task=countdown(), numbers=3, number_range=[1, 49], target_range=[10, 50])
    moved = game.play(board, moves=1, rng=np.random.default_rng(0))
    legal = [move.state for move in legal_moves((1300, 2, 1))]
    for state in set(legal):
        share = (moved == np.array(state)).all(axis=1).mean()
        assert abs(share - legal.count(state) / len(legal)) < 0.015
    assert {tuple(state) for state in moved.tolist()} == set(legal)

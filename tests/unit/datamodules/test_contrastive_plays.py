"""Contrastive data of random plays: labels by hand, frequencies, the optimum, and that no search labels anything."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from numpy import ndarray
from torch import Tensor

from contrastive_reasoning.critics.base import NONE
from contrastive_reasoning.losses import binary_nce_balanced, info_nce_symmetric
from contrastive_reasoning.tasks.countdown import legal_moves, reachable, search_trace
from datamodules.contrastive_plays import AnyOfPlays, ContrastivePlays, EveryDraw, Positives
from datamodules.countdown_game import CountdownGame
from datamodules.game import Game
from datamodules.game_states import GameStates
from datamodules.oracle_states import held_out_states, oracle_batches, oracle_states, target_form
from datamodules.random_play import keys_of, play_chances
from datamodules.written_searches import WrittenSearches, ends_of_search
from tests.unit.datamodules.kit import countdown

TASK = countdown()
GAME = CountdownGame(task=TASK, numbers=4, number_range=[1, 49], target_range=[10, 50])
SEARCHES = ("reachable", "reachable_targets", "reached_values", "best_moves")
"""Functions that know what can be reached."""


def settings(**changes: Any) -> dict[str, Any]:
    shares = (0.2, 0.4, 0.3, 0.1)
    common = {"game": GAME, "depth_shares": shares, "batch_size": 40, "validation_batches": 2}
    return {**common, "oracle_batch_size": 1000, "workers": 0, "seed": 0, **changes}


def plays(count: int = 4, positives: Positives | None = None, **changes: Any) -> ContrastivePlays:
    return ContrastivePlays(plays=count, positives=positives or EveryDraw(), **settings(**changes))


@pytest.mark.parametrize(
    ("positives", "columns", "rows"),
    [
        (EveryDraw(), [24, 7, 24, 31, 24], [[1, 1, 1, 0, 0], [0, 0, 0, 1, 1], [0, 0, 0, 0, 0]]),
        (AnyOfPlays(), [7, 24, 31], [[1, 1, 0], [0, 1, 1], [0, 0, 0]]),
    ],
    ids=["each draw is a column", "each goal counts once"],
)
def test_columns_of_positives(positives: Positives, columns: list[int], rows: list[list[int]]) -> None:
    goals, positive, _ = positives(np.array([[24, 7, 24], [31, NONE, 24], [NONE, NONE, NONE]]))
    assert goals.tolist() == columns
    assert positive.astype(int).tolist() == rows


@pytest.mark.parametrize("positives", [EveryDraw(), AnyOfPlays()])
def test_positives_were_reached_and_anchors_are_no_evaluation_states(positives: Positives) -> None:
    held_out = held_out_states(TASK)
    for number in range(2):
        batch = plays(positives=positives).batch(number)
        assert batch.candidate.all()
        for row, state in enumerate(batch.state_actions.tolist()):
            numbers = [each for each in state if each >= 0]
            assert tuple(sorted(numbers)) not in held_out
            assert all(reachable(numbers, goal) for goal in batch.goals[batch.positive[row]].tolist())


@pytest.mark.parametrize("positives", [EveryDraw(), AnyOfPlays()])
def test_training_batches_need_no_search(positives: Positives, monkeypatch: pytest.MonkeyPatch) -> None:
    data = plays(positives=positives)
    assert len(GAME.held_out)  # which states are held out is known beforehand

    def poisoned(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("a search labelled training data")

    ours = ("contrastive_reasoning.", "datamodules.")
    for module in [module for name, module in sys.modules.items() if name.startswith(ours)]:
        for name in SEARCHES:
            if hasattr(module, name):
                monkeypatch.setattr(module, name, poisoned)
    for number in range(3):
        data.batch(number)
    with pytest.raises(AssertionError, match="a search labelled"):
        data.label_report()


def test_batch_is_determined_by_seed_split_and_number() -> None:
    one, same = plays().batch(5), plays().batch(5)
    assert torch.equal(one.state_actions, same.state_actions)
    assert torch.equal(one.goals, same.goals)
    for other in (plays().batch(6), plays(seed=1).batch(5), plays().batch(5, split="validation")):
        assert not torch.equal(one.state_actions, other.state_actions)


@cache
def chance(numbers: tuple[int, ...], target: int) -> float:
    if len(numbers) == 1:
        return float(numbers[0] == target)
    moves = legal_moves(numbers)
    return sum(chance(move.state, target) for move in moves) / len(moves)


def test_chances_of_random_play_match_the_recursion() -> None:
    boards = np.array([[3, 5, 2, 7], [1, 1, 1, 1], [25, 5, 5, 4]])
    targets = np.array([17, 2, 24])
    slow = [chance(tuple(board), target) for board, target in zip(boards.tolist(), targets.tolist(), strict=True)]
    np.testing.assert_allclose(play_chances(boards, targets), slow, rtol=1e-12)
    batch = oracle_batches(target_form, batch_size=50, problems=6)[0]
    states = oracle_states()[: len(batch.label)]
    expected = [chance(state.state, state.target) for state in states]
    torch.testing.assert_close(batch.chance, torch.tensor(expected, dtype=torch.float32))
    assert ((batch.chance > 0) == batch.label).all()


def test_draws_have_the_frequency_of_random_play() -> None:
    board, count = np.array([[6, 4, 3]]), 20_000
    ends = GAME.play(board.repeat(count, axis=0), moves=2, rng=np.random.default_rng(0))[:, 0]
    for target in (13, 24, 27, 14, 72):
        expected = chance((6, 4, 3), target)
        assert (ends == target).mean() == pytest.approx(expected, abs=4 * (expected / count) ** 0.5 + 1e-9)


class Coins(Game):
    """State s ends on goal g with probability ``P[s, g]`` in one move of 20 equal options."""

    chances = np.array([[0.6, 0.3, 0.1], [0.5, 0.1, 0.4], [0.7, 0.25, 0.05]])
    horizon = 1

    def starts(self, count: int, rng: np.random.Generator) -> Any:
        return rng.integers(0, 3, (count, 1))

    def legal_moves(self, states: Any) -> tuple[Any, Any]:
        options = np.stack([np.repeat([0, 1, 2], np.rint(20 * row).astype(int)) for row in self.chances])
        return options[states[:, 0]][..., None], np.ones((len(states), 20), dtype=bool)

    def goal(self, states: Any) -> Any:
        return states[:, 0]

    def features(self, states: Any) -> Tensor:
        return torch.from_numpy(states[:, 0])


@pytest.mark.parametrize(("loss", "count"), [(binary_nce_balanced, 1), (info_nce_symmetric, 2)])
def test_optimum_is_the_log_ratio_of_random_play(loss: Callable[..., Tensor], count: int) -> None:
    data = plays(count, game=Coins(), depth_shares=[1.0], batch_size=256)
    table = torch.zeros(3, 3, requires_grad=True)
    optimizer = torch.optim.Adam([table], lr=0.3)
    batches = [data.batch(number) for number in range(8 // count)]
    for _ in range(30):
        optimizer.zero_grad()
        for batch in batches:
            scores = table[batch.state_actions][:, batch.goals]
            loss(scores, batch.positive, batch.candidate).backward()
        optimizer.step()
    exact = torch.from_numpy(Coins.chances)
    wanted = (exact / exact.mean(dim=0)).log()
    error = table.detach() - wanted
    assert (error - error.mean()).abs().max() < 0.4  # 2,048 draws; log p(g | s) alone would be off by 0.6


@pytest.mark.parametrize("kind", ["draws", "any", "searches"])
def test_label_report_matches_slow_count(kind: str) -> None:
    kinds: dict[str, GameStates] = {
        "draws": plays(),
        "any": plays(positives=AnyOfPlays()),
        "searches": WrittenSearches(**settings()),
    }
    data, pairs = kinds[kind], dict[int, list[bool]]()
    for loader in data.val_dataloader()[:1]:
        for batch in loader:
            for row, state in enumerate(batch.state_actions.tolist()):
                numbers = [each for each in state if each >= 0]
                for goal in set(batch.goals.tolist()):
                    if reachable(numbers, goal):
                        own = bool((batch.positive[row] & (batch.goals == goal)).any())
                        pairs.setdefault(4 - len(numbers), []).append(not own)
    expected = {f"reachable_negatives_depth{moves}": sum(each) / len(each) for moves, each in pairs.items()}
    assert data.label_report() == pytest.approx(expected)
    assert expected["reachable_negatives_depth3"] == 0


def test_written_searches_have_the_values_that_the_search_writes() -> None:
    batch = WrittenSearches(**settings()).batch(0)
    for row, state in enumerate(batch.state_actions.tolist()):
        numbers = [each for each in state if each >= 0]
        assert all(reachable(numbers, goal) for goal in batch.goals[batch.positive[row]].tolist())
    text = search_trace((6, 4, 3), 27, style="longproc").text
    ends = [end for (end,) in ends_of_search([6, 4, 3], 27)]
    assert [f"Evaluate {end} " in text for end in ends] == [True] * len(ends)
    assert ends[-1] == 27


def test_labels_are_boolean_where_no_search_ends_in_the_target_range() -> None:
    far = game(number_range=[1, 2], target_range=[100, 101])
    batch = WrittenSearches(**settings(game=far, depth_shares=[1.0, 0.0, 0.0, 0.0])).batch(0)
    assert len(batch.goals) == 0
    assert batch.positive.dtype == torch.bool
    assert batch.candidate.dtype == torch.bool


def game(**changes: Any) -> CountdownGame:
    return CountdownGame(**{"task": TASK, "numbers": 4, "number_range": [1, 9], "target_range": [1, 9], **changes})


@pytest.mark.parametrize(
    ("make", "changes", "named"),
    [
        (plays, {"count": 0}, "plays"),
        (plays, {"depth_shares": [0.5, -0.5]}, "shares"),
        *[(plays, {"depth_shares": shares}, "depth_shares") for shares in ([0.2] * 5, [])],
        (game, {"numbers": 7}, "numbers"),
    ],
)
def test_settings_out_of_range_are_refused(make: Callable[..., Any], changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        make(**changes)


class OneWay(Coins):
    """A corridor of rooms 0, 1, 2; from room 2 there is no move."""

    horizon = 5

    def legal_moves(self, states: Any) -> tuple[Any, Any]:
        return (states + 1)[:, None], states < 2


def test_anchors_are_redrawn_until_start_and_anchor_are_allowed() -> None:
    def anchors(high: int, moves: int, held_out: list[tuple[int, ...]]) -> ndarray:
        small = game(numbers=2, number_range=(1, high))
        small.held_out = keys_of(held_out)
        return small.anchors(50, moves=moves, rng=np.random.default_rng(0))

    others = [(a, b) for a in (1, 2, 3) for b in (1, 2, 3) if (a, b) not in ((1, 2), (2, 1))]
    assert {tuple(sorted(start)) for start in anchors(3, 0, others).tolist()} == {(1, 2)}
    ends = anchors(2, 1, [(3,), (2, 2)])
    assert set(ends[1::2].flatten().tolist()) <= {0, 1, 2}
    with pytest.raises(ValueError, match="held out"):
        anchors(2, 0, [(1, 1), (1, 2), (2, 2)])


def test_a_state_without_moves_ends_its_play_early() -> None:
    assert OneWay().play(np.array([[0], [1], [2]]), moves=1, rng=np.random.default_rng(0)).tolist() == [[1], [2], [2]]
    assert plays(game=OneWay(), depth_shares=[1.0]).batch(0).goals.eq(2).all()

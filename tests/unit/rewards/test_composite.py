"""GameLevelReward: the mean for complete legal games, and never more for games that stop early."""

from __future__ import annotations

import random

import pytest
import torch

from contrastive_reasoning.rewards import GameLevelReward, OracleReward, VerifierReward, WeightedSum
from contrastive_reasoning.rewards.composite import game_level, moves_of
from contrastive_reasoning.tasks.base import Problem, Task
from contrastive_reasoning.tasks.countdown import reachable
from tests.unit.rewards.conftest import play

WON = "21+16=37;37-17=20;26+20=46"


def oracle(task: Task, weight: float = 0.0) -> OracleReward:
    return OracleReward(outcome=VerifierReward(task=task), task=task, weight=weight)


def test_game_level_of_complete_legal_games_equals_oracle_mean(task: Task, rollouts_of) -> None:
    rng = random.Random(0)
    rollouts = rollouts_of([WON, *(play(rng, (21, 16, 17, 26)) for _ in range(40))])
    level = GameLevelReward(reward=oracle(task), weight=0.5)(rollouts)
    assert torch.equal(level.outcome, oracle(task, 0.5)(rollouts).outcome)
    assert 0 < level.parts["game_level"].mean() < 1


def test_game_level_counts_missing_and_illegal_moves_as_zero(task: Task, rollouts_of) -> None:
    texts = [WON, "21+16=37", "21+16=37;37-17=20", "21+16=37;37-21=16;1", "21+16=37;37-17=20;20+20=40", "37;37", ""]
    assert all(reachable(state, 46) for state in [(37, 17, 26), (20, 26)])
    rollouts = rollouts_of(texts)
    credit = GameLevelReward(reward=oracle(task), weight=0.5)(rollouts)
    expected = torch.tensor([3 / 3, 1 / 3, 2 / 3, 1 / 3, 2 / 3, 0.0, 0.0])
    torch.testing.assert_close(credit.parts["game_level"], expected)
    torch.testing.assert_close(credit.outcome, torch.tensor([1.0, 0, 0, 0, 0, 0, 0]) + 0.5 * expected)
    oracle_outcome = oracle(task, 0.5)(rollouts).outcome
    assert oracle_outcome[1] == 0.5, "which the mean of legal moves pays in full"
    inner = oracle(task)(rollouts)
    assert credit.steps == inner.steps, "step by step all is as it was"
    assert credit.verdicts == inner.verdicts


@pytest.mark.parametrize("seed", range(10))
def test_game_level_does_not_rise_by_stopping_early_or_illegal_moves(seed: int) -> None:
    rng = random.Random(seed)
    moves = rng.randint(1, 6)
    values = [rng.random() for _ in range(moves + rng.randint(0, 6))]
    whole, kept, forbidden = values[:moves], rng.randint(0, moves), rng.randint(0, 5)
    level = game_level(whole, forbidden=0, moves=moves)
    assert level == pytest.approx(sum(whole) / moves)
    assert game_level(whole[:kept], forbidden=forbidden, moves=moves) <= level
    assert game_level(values, forbidden=0, moves=moves) == pytest.approx(sum(values) / len(values)), "a long walk"


def test_game_level_rejects_reward_that_adds_its_values(task: Task) -> None:
    with pytest.raises(ValueError, match=r"OracleReward.*0\.5"):
        GameLevelReward(reward=oracle(task, 0.5), weight=0.5)
    summed = WeightedSum(rewards={"oracle": oracle(task, 0.5)}, weights={"oracle": 0.0})
    GameLevelReward(reward=summed, weight=0.5)


def test_game_level_without_step_values_or_numbers_raises(task: Task, rollouts_of) -> None:
    with pytest.raises(ValueError, match="verifier"):
        GameLevelReward(reward=VerifierReward(task=task), weight=0.5)(rollouts_of(["", ""]))
    with pytest.raises(ValueError, match="problem 7"):
        moves_of(Problem(id="7", prompt="?", answer="1", fields={}))

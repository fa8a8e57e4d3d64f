"""A level that breaking off cannot raise: the values of the legal moves over as many moves as the game takes.

    oracle, moves of three numbers        mean of the legal moves' values      this
    good; good, the target                              1                       1
    good; bad                                           ½                       ½
    good; against the rules                             1                       ½
    good, and no more                                   1                       ½

The mean pays most for a good first move and a second that does not count, and policies find that out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from contrastive_reasoning.rewards.base import Credit, Reward, refuse_adding, refuse_learning
from contrastive_reasoning.rewards.shaping import start_of
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.tasks.base import Problem


class GameLevelReward:
    """``reward`` plus ``weight`` times the level of its step values over the whole game. Countdown only.

    Args:
        reward: values steps. Its own weight must be 0: what it adds to the outcome is the mean of the legal moves.
        weight: of the level in the outcome.

    Raises:
        ValueError: where the reward adds its values to the outcome itself, or, when called, values no steps, or a
            problem does not say what is left.
    """

    values_steps = True

    def __init__(self, *, reward: Reward, weight: float) -> None:
        refuse_learning("GameLevelReward", reward)
        refuse_adding("GameLevelReward", reward)
        self.reward = reward
        self.weight = weight

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        credit = self.reward(rollouts)
        if credit.steps is None:
            raise ValueError(f"a reward without step values has no level: {', '.join(credit.parts) or 'nothing'}")
        forbidden = credit.illegal or [()] * len(rollouts)
        part = credit.outcome.new_tensor(
            [
                game_level(
                    [step.value for step in steps], forbidden=len(broken), moves=moves_of(rollouts.problem_of(row))
                )
                for row, (steps, broken) in enumerate(zip(credit.steps, forbidden, strict=True))
            ]
        )
        return replace(credit, outcome=credit.outcome + self.weight * part, parts={**credit.parts, "game_level": part})


def game_level(values: Sequence[float], *, forbidden: int, moves: int) -> float:
    """Sum of the ``values`` of legal moves over the ``moves`` of a game, or over those written where they are more.

    Args:
        values: of the legal moves, in [0, 1].
        forbidden: moves written that the rules forbid.
        moves: that a whole game takes, at least 1.
    """
    return sum(values) / max(moves, len(values) + forbidden)


def moves_of(problem: Problem) -> int:
    """How many moves a whole game takes: one fewer than there are numbers.

    Raises:
        ValueError: for a problem that names no numbers.
    """
    start = start_of(problem)
    if start is None:
        raise ValueError(f"a game's level needs Countdown's numbers, which problem {problem.id} does not have")
    return len(start.state) - 1

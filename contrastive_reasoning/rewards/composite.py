"""Rewards that combine other rewards: a weighted sum, and the level of a game computed from its step values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from contrastive_reasoning.rewards.base import (
    Credit,
    Reward,
    failure_metrics,
    refuse_adding,
    refuse_learning,
)
from contrastive_reasoning.rewards.step_values import start_of
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.tasks.base import Problem


class WeightedSum:
    """Σ weight · outcome over ``rewards``, each logged under its own name. At most one of them may value steps.

    Step values are not weighted, because advantages compare them with the verdict, which is not scaled either. The
    weight of the advantage sets their influence.

    Raises ValueError if there are no rewards, if their names and those of the weights differ, or if a reward learns.
    When called, raises ValueError if two rewards share a part's name or value steps.
    """

    def __init__(self, *, rewards: Mapping[str, Reward], weights: Mapping[str, float]) -> None:
        if set(rewards) != set(weights) or not rewards:
            raise ValueError(f"rewards ({', '.join(rewards)}) and weights ({', '.join(weights)}) must name the same")
        refuse_learning("WeightedSum", *rewards.values())
        self.rewards = dict(rewards)
        self.weights = dict(weights)

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        credits = {name: reward(rollouts) for name, reward in self.rewards.items()}
        outcome = torch.stack([self.weights[name] * credit.outcome for name, credit in credits.items()]).sum(dim=0)
        verdicts = [credit.verdicts for credit in credits.values() if credit.verdicts is not None]
        failures = {row: why for credit in credits.values() for row, why in credit.failures.items()}
        metrics = {name: value for credit in credits.values() for name, value in credit.metrics.items()}
        if len(valuing := [name for name, credit in credits.items() if credit.steps is not None]) > 1:
            raise ValueError(f"one reward of a sum may value steps, not {' and '.join(valuing)}")
        parts: dict[str, torch.Tensor] = {}
        for name, credit in credits.items():
            if shared := parts.keys() & credit.parts.keys():
                raise ValueError(
                    f"reward {name} repeats the part {', '.join(sorted(shared))} of another reward of the sum"
                )
            parts.update(credit.parts)
        return Credit(
            outcome=outcome,
            parts=parts,
            steps=next((credit.steps for credit in credits.values() if credit.steps is not None), None),
            illegal=next((credit.illegal for credit in credits.values() if credit.illegal is not None), None),
            starts=next((credit.starts for credit in credits.values() if credit.starts is not None), None),
            verdicts=verdicts[0] if verdicts else None,
            failures=failures,
            metrics={**metrics, **failure_metrics(failures, len(rollouts))},
        )


@dataclass(kw_only=True, eq=False)
class GameLevelReward:
    """``reward`` plus ``weight`` times its level: the sum of its step values over the number of moves of the game.

    Stopping early cannot raise the level, but it can raise the mean that a reward of steps adds itself:

        oracle, moves of three numbers        mean of the legal moves' values    level
        good; good, the target                              1                       1
        good; bad                                           ½                       ½
        good; against the rules                             1                       ½
        good, and no more                                   1                       ½

    The mean is highest for a good first move followed by a move that does not count, and policies learn to exploit
    that. Countdown only.

    Raises ValueError if the reward adds its values to the outcome itself. When called, raises ValueError if the reward
    values no steps or a problem has no numbers.
    """

    reward: Reward
    """It values steps. Its own weight must be 0, because it would add the mean of the legal moves to the outcome."""
    weight: float
    """Of the level in the outcome."""

    values_steps = True

    def __post_init__(self) -> None:
        refuse_learning("GameLevelReward", self.reward)
        refuse_adding("GameLevelReward", self.reward)

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        credit = self.reward(rollouts)
        if credit.steps is None:
            raise ValueError(f"a reward without step values has no level: {credit.named}")
        forbidden = credit.illegal or [()] * len(rollouts)
        levels = [
            game_level([step.value for step in steps], forbidden=len(broken), moves=moves_of(rollouts.problem_of(row)))
            for row, (steps, broken) in enumerate(zip(credit.steps, forbidden, strict=True))
        ]
        return credit.plus("game_level", credit.outcome.new_tensor(levels), weight=self.weight)


def game_level(values: Sequence[float], *, forbidden: int, moves: int) -> float:
    """Returns the sum of the legal moves' values over the ``moves`` of a game, or over the written moves if more.

    ``forbidden`` is the number of written moves that break the rules.
    """
    return sum(values) / max(moves, len(values) + forbidden)


def moves_of(problem: Problem) -> int:
    """Returns the number of moves of a whole game: one fewer than there are numbers.

    Raises ValueError for a problem without numbers.
    """
    start = start_of(problem)
    if start is None:
        raise ValueError(f"a game's level needs Countdown's numbers, which problem {problem.id} does not have")
    return len(start.state) - 1

"""Rewards made of other rewards: a weighted sum, and the level of a game from the values of its moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from contrastive_reasoning.rewards.base import (
    Credit,
    Reward,
    failure_metrics,
    refuse_adding,
    refuse_learning,
)
from contrastive_reasoning.rewards.shaping import start_of
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.tasks.base import Problem


class WeightedSum:
    """Σ weight · outcome over ``rewards``, each logged by its own name. At most one of them may value steps.

    The values of steps are not weighted: advantages compare them with the verdict, which no weight scales either. How
    much they count is the weight of the advantage.

    Raises ValueError where names of rewards and weights differ, or two rewards share the name of a part.
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


class GameLevelReward:
    """``reward`` plus ``weight`` times the level of its step values over as many moves as the game takes.

    A level that breaking off cannot raise, as it can the mean that a reward of steps adds itself:

        oracle, moves of three numbers        mean of the legal moves' values      this
        good; good, the target                              1                       1
        good; bad                                           ½                       ½
        good; against the rules                             1                       ½
        good, and no more                                   1                       ½

    The mean pays most for a good first move and a second that does not count, and policies learn to exploit that.
    Countdown only.

    Args:
        reward: values steps. Its own weight must be 0: what it adds to the outcome is the mean of the legal moves.
        weight: of the level in the outcome.

    Raises ValueError where the reward adds its values to the outcome itself, or, when called, values no steps, or a
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
            raise ValueError(f"a reward without step values has no level: {credit.named}")
        forbidden = credit.illegal or [()] * len(rollouts)
        levels = [
            game_level([step.value for step in steps], forbidden=len(broken), moves=moves_of(rollouts.problem_of(row)))
            for row, (steps, broken) in enumerate(zip(credit.steps, forbidden, strict=True))
        ]
        part = credit.outcome.new_tensor(levels)
        return replace(credit, outcome=credit.outcome + self.weight * part, parts={**credit.parts, "game_level": part})


def game_level(values: Sequence[float], *, forbidden: int, moves: int) -> float:
    """Sum of the values of legal moves over the ``moves`` of a game, or over those written where they are more.

    ``forbidden`` of the moves that were written break the rules.
    """
    return sum(values) / max(moves, len(values) + forbidden)


def moves_of(problem: Problem) -> int:
    """How many moves a whole game takes: one fewer than there are numbers.

    Raises ValueError for a problem that names no numbers.
    """
    start = start_of(problem)
    if start is None:
        raise ValueError(f"a game's level needs Countdown's numbers, which problem {problem.id} does not have")
    return len(start.state) - 1

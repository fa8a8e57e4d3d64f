"""A completion as a person wants to read it: its steps with what the rules, the oracle and a critic say of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from contrastive_reasoning.rewards import CriticReward
from contrastive_reasoning.rewards.oracle import in_reach
from contrastive_reasoning.rollout import RolloutBatch
from contrastive_reasoning.tasks.base import Step, Verdict
from experiments.sample.question import Question


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One step, judged."""

    step: Step
    reachable: bool | None
    """Whether the target can still be reached after it, exactly; None for an illegal step, and outside Countdown."""
    value: float | None
    """The critic's, σ(f/τ); None for an illegal step, and without a critic."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One completion."""

    text: str
    tokens: int
    finished: bool
    """False where the length ended it."""
    steps: Sequence[Judged]
    verdict: Verdict | None
    """None where no answer is known."""


def readings(asked: Question, rollouts: RolloutBatch, critic: CriticReward | None) -> list[Reading]:
    """Every completion of the one problem of ``rollouts``."""
    steps = [asked.steps(text) for text in rollouts.texts]
    legal = [[step for step in row if step.legal] for row in steps]
    valued = [dict[int, float]() for _ in steps]
    if critic is not None:
        valued = [{id(step): value for step, value in row} for row in critic.step_values(rollouts, legal)]
    return [
        Reading(
            text=text,
            tokens=int(rollouts.mask[row].sum()),
            finished=rollouts.finish_reasons[row] == "stop",
            steps=[
                Judged(step=step, reachable=in_reach(asked.problem, step), value=valued[row].get(id(step)))
                for step in steps[row]
            ],
            verdict=None if asked.verify is None else asked.verify(text),
        )
        for row, text in enumerate(rollouts.texts)
    ]

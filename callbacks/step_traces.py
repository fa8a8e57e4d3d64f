"""The steps of a completion with what each was worth: its text, its credit, the reward's value, the oracle's answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from contrastive_reasoning.rewards import Credit
from contrastive_reasoning.rewards.oracle import in_reach
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.rollout.spans import tokens_of_span
from contrastive_reasoning.tasks.base import Task, Verdict


@dataclass(frozen=True, kw_only=True)
class TracedStep:
    """One step as it is drawn."""

    text: str
    credit: float
    """The mean advantage of its tokens."""
    value: float | None
    """What the reward said of the state it reached; None where it said nothing."""
    in_reach: bool | None
    """Whether the target can still be reached after it; None where no oracle knows."""
    legal: bool


@dataclass(frozen=True, kw_only=True)
class StepTrace:
    """One completion as it is drawn."""

    problem: str
    correct: bool
    reason: str
    steps: Sequence[TracedStep]


def step_trace(
    task: Task, rollouts: RolloutBatch, credit: Credit, advantages: Tensor, verdict: Verdict, row: int
) -> StepTrace:
    """The steps of one rollout, as the task reads them, each with the advantages of its own tokens."""
    problem, text = rollouts.problem_of(row), rollouts.texts[row]
    values = {step.first_token: step.value for step in (credit.steps or [[]] * len(rollouts))[row]}
    steps = []
    for step in task.parse_steps(problem, text):
        tokens = tokens_of_span(rollouts.token_spans[row], step.start, step.end)
        if tokens is not None:
            first, last = tokens
            steps.append(
                TracedStep(
                    text=text[step.start : step.end],
                    credit=float(advantages[row, first : last + 1].mean()),
                    value=values.get(first) if step.legal else None,
                    in_reach=in_reach(problem, step),
                    legal=step.legal,
                )
            )
    return StepTrace(problem=problem.id, correct=verdict.correct, reason=verdict.reason, steps=steps)

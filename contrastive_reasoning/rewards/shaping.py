"""Shaping by steps:  r = outcome + weight · mean of the values of the legal steps, and the values themselves on tokens.

The mean, not the sum: a sum of levels would pay for long walks through good states. Even the mean moves the optimum;
``advantages.Process`` uses the values step by step, and weight 0 leaves the outcome alone there.
"""

from __future__ import annotations

from collections.abc import Sequence

from contrastive_reasoning.rewards.base import Credit, StepCredit
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.rollout.spans import tokens_of_span
from contrastive_reasoning.tasks.base import Step, Task

StepValue = tuple[Step, float]


def legal_steps(task: Task, rollouts: RolloutBatch) -> list[list[Step]]:
    """The legal steps of every rollout, in order of writing."""
    return [
        [step for step in task.parse_steps(rollouts.problem_of(row), text) if step.legal]
        for row, text in enumerate(rollouts.texts)
    ]


def shaped(
    credit: Credit, rollouts: RolloutBatch, values: Sequence[Sequence[StepValue]], *, name: str, weight: float
) -> Credit:
    """``credit`` with the part ``name`` added: its mean value per rollout (0 without steps) and its step credit.

    Raises:
        ValueError: where ``credit`` has a part of that name or values steps already.
    """
    if name in credit.parts or credit.steps is not None:
        raise ValueError(f"reward {name} cannot shape {', '.join(credit.parts)}: one part of a reward may value steps")
    part = rollouts.old_log_probs.new_tensor([_mean([value for _, value in row]) for row in values])
    return Credit(
        outcome=credit.outcome + weight * part,
        parts={**credit.parts, name: part},
        steps=[_on_tokens(rollouts.token_spans[i], row) for i, row in enumerate(values)],
        verdicts=credit.verdicts,
        metrics=credit.metrics,
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _on_tokens(spans: Sequence[tuple[int, int]], values: Sequence[StepValue]) -> list[StepCredit]:
    """Step values on the tokens that begin inside the step."""
    placed = [(tokens_of_span(spans, step.start, step.end), value) for step, value in values]
    depths = [_depth(step, index) for index, (step, _) in enumerate(values)]
    return [
        StepCredit(*tokens, value, depth=depth)
        for (tokens, value), depth in zip(placed, depths, strict=True)
        if tokens is not None
    ]


def _depth(step: Step, index: int) -> int:
    """The length of the state after the step; ``index`` for a state that is no list or tuple."""
    return len(step.state) if isinstance(step.state, list | tuple) else index

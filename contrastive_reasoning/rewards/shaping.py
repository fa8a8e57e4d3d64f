"""Shaping by steps:  r = outcome + weight · mean of the values of the legal steps, and the values themselves on tokens.

The mean, not the sum: a sum of levels would pay for long walks through good states. Even the mean moves the optimum,
and pays for breaking off after a good step (``rewards.GameLevelReward`` does not); ``advantages.Process`` uses the
values step by step, and weight 0 leaves the outcome alone there.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

from contrastive_reasoning.rewards.base import Credit, StepCredit
from contrastive_reasoning.rewards.step_metrics import FINISHED, Judged, step_metrics
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.rollout.spans import token_of_character, tokens_of_span
from contrastive_reasoning.tasks.base import Problem, Step, Task

StepValue = tuple[Step, float]


def legal_steps(task: Task, rollouts: RolloutBatch) -> list[list[Step]]:
    """The legal steps of every rollout, in order of writing."""
    return [
        [step for step in task.parse_steps(rollouts.problem_of(row), text) if step.legal]
        for row, text in enumerate(rollouts.texts)
    ]


def illegal_steps(task: Task, rollouts: RolloutBatch) -> list[list[Step]]:
    """The steps of every rollout that the rules forbade, each with the state that it left as it was.

    Only where states are the numbers left: elsewhere nobody knows where a step would have led. After the last number
    there is no step to make.
    """
    return [
        [step for step in task.parse_steps(problem, text) if not step.legal and len(step.state) > 1]
        if start_of(problem := rollouts.problem_of(row)) is not None
        else []
        for row, text in enumerate(rollouts.texts)
    ]


def state_values(
    task: Task, rollouts: RolloutBatch, value: Callable[[Problem, Sequence[int]], float]
) -> tuple[list[list[StepValue]], list[float]]:
    """``value(problem, state)`` of the state after every legal step, and of each problem's own. Countdown only."""
    steps = [
        [(step, value(rollouts.problem_of(row), step.state)) for step in steps]
        for row, steps in enumerate(legal_steps(task, rollouts))
    ]
    return steps, [value(problem, problem.fields["numbers"]) for problem in rollouts.problems]


def start_of(problem: Problem) -> Step | None:
    """The state before the first step, as a step of no characters; None for a task that names no such state."""
    numbers = problem.fields.get("numbers")
    return None if numbers is None else Step(start=0, end=0, state=tuple(numbers), legal=True)


def beginnings(rollouts: RolloutBatch) -> list[Step | None]:
    """``start_of`` the problem of every rollout."""
    return [start_of(problem) for problem in rollouts.problems for _ in range(rollouts.group_size)]


def shaped(
    credit: Credit,
    rollouts: RolloutBatch,
    values: Sequence[Sequence[StepValue]],
    *,
    illegal: Sequence[Sequence[Step]],
    name: str,
    weight: float,
    starts: Sequence[float] | None = None,
) -> Credit:
    """``credit`` with the part ``name`` added: its mean value per rollout (0 without steps) and its step credit.

    How well the values tell which rollouts the verifier accepts is added to the metrics (see ``step_metrics``).

    Args:
        credit: of the reward that is shaped.
        rollouts: what is rewarded.
        values: of the legal steps of every rollout.
        illegal: the steps of every rollout that the rules forbade and that are compared with those.
        name: of the part.
        weight: of the mean value in the outcome.
        starts: the value of each problem's own state, one for each of the P problems.

    Raises:
        ValueError: where ``credit`` has a part of that name or values steps already.
    """
    if name in credit.parts or credit.steps is not None:
        raise ValueError(f"reward {name} cannot shape {', '.join(credit.parts)}: one part of a reward may value steps")
    part = rollouts.old_log_probs.new_tensor([_mean([value for _, value in row]) for row in values])
    begun = beginnings(rollouts)
    steps = [_on_tokens(*row) for row in zip(rollouts.token_spans, values, begun, strict=True)]
    judged = [
        [_judged(step, value, index, start) for index, (step, value) in enumerate(row)]
        for row, start in zip(values, begun, strict=True)
    ]
    seen = step_metrics(judged, steps, credit.verdicts, rollouts.group_size)
    return replace(
        credit,
        outcome=credit.outcome + weight * part,
        parts={**credit.parts, name: part},
        steps=steps,
        illegal=[_forbidden(rollouts.token_spans[i], row) for i, row in enumerate(illegal)],
        starts=None if starts is None else [starts[row // rollouts.group_size] for row in range(len(rollouts))],
        metrics={**credit.metrics, **seen},
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _on_tokens(spans: Sequence[tuple[int, int]], values: Sequence[StepValue], start: Step | None) -> list[StepCredit]:
    """Step values on the tokens that begin inside the step."""
    seen = set() if start is None else {identity_of(start)}
    placed: list[StepCredit] = []
    for index, (step, value) in enumerate(values):
        state, tokens = identity_of(step), tokens_of_span(spans, step.start, step.end)
        if tokens is not None:
            placed.append(
                StepCredit(
                    *tokens,
                    value,
                    depth=depth_of(step, index, start),
                    again=state in seen,
                    settled_token=_settled(spans, step),
                    lost=step.lost,
                )
            )
        seen.add(state)
    return placed


def _forbidden(spans: Sequence[tuple[int, int]], steps: Sequence[Step]) -> list[StepCredit]:
    """Worth 0, one number fewer than was left."""
    placed = [(step, tokens_of_span(spans, step.start, step.end)) for step in steps]
    return [
        StepCredit(
            *tokens,
            0.0,
            depth=len(step.state) - 1,
            legal=False,
            settled_token=_settled(spans, step),
            lost=step.lost,
        )
        for step, tokens in placed
        if tokens is not None
    ]


def _settled(spans: Sequence[tuple[int, int]], step: Step) -> int:
    return token_of_character(spans, (step.end if step.settled is None else step.settled) - 1)


def _judged(step: Step, value: float, index: int, start: Step | None) -> Judged:
    depth = depth_of(step, index, start)
    return Judged(value=value, depth=depth, finished=depth == FINISHED)


def identity_of(step: Step) -> Hashable:
    """The numbers left, in any order; a state of another kind as it is written."""
    return tuple(sorted(step.state)) if isinstance(step.state, list | tuple) else str(step.state)


def depth_of(step: Step, index: int, start: Step | None) -> int:
    """How many numbers are left after the step; −``index`` where states are no numbers left, or there is no ``start``.

    Either falls from step to step, and 1 is a game's last number alone: results that are written one after another, as
    the states of arithmetic are, would begin at 1 and grow.
    """
    return len(step.state) if start is not None and isinstance(step.state, list | tuple) else -index

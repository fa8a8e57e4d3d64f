"""Step values:  r = outcome + weight · mean of the values of the legal steps, and the values themselves on tokens.

The reward uses the mean, because a sum would reward long walks through good states. Even the mean shifts the optimum
and rewards stopping after a good step; ``GameLevelReward`` does not. ``advantages.Process`` uses the values step by
step; with weight 0 the outcome stays unchanged there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

from contrastive_reasoning.rewards.base import Credit, Reward, StepCredit, refuse_learning
from contrastive_reasoning.rewards.step_metrics import Judged, step_metrics
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.rollout.spans import token_of_character, tokens_of_span
from contrastive_reasoning.tasks.base import Problem, Step, Task

FINISHED = 1
"""Depth of a state in which no move is left."""
StepValue = tuple[Step, float]


class Steps(NamedTuple):
    """The steps of every rollout, in order of writing."""

    legal: list[list[Step]]
    illegal: list[list[Step]]
    """The steps that the rules forbid, each with the state that it left unchanged. Listed only if states are the
    numbers left: elsewhere it is unknown where a step would have led. Steps after the last number are not listed."""


def read_steps(task: Task, rollouts: RolloutBatch) -> Steps:
    """Returns the legal and the illegal steps of every rollout."""
    parsed = rollouts.steps_by(task)
    return Steps(
        legal=[[step for step in steps if step.legal] for steps in parsed],
        illegal=[
            [] if start is None else [step for step in steps if not step.legal and len(step.state) > 1]
            for steps, start in zip(parsed, start_steps(rollouts), strict=True)
        ],
    )


def legal_steps(task: Task, rollouts: RolloutBatch) -> list[list[Step]]:
    """Returns the legal steps of every rollout, in order of writing."""
    return read_steps(task, rollouts).legal


def start_of(problem: Problem) -> Step | None:
    """Returns the state before the first step as a step of no characters; None if the problem has no such state."""
    numbers = problem.fields.get("numbers")
    return None if numbers is None else Step(start=0, end=0, state=tuple(numbers), legal=True)


def start_steps(rollouts: RolloutBatch) -> list[Step | None]:
    """Returns ``start_of`` the problem of every rollout."""
    starts = [start_of(problem) for problem in rollouts.problems]
    return [start for start in starts for _ in range(rollouts.group_size)]


@dataclass(kw_only=True, eq=False)
class StepReward:
    """``outcome`` plus ``weight`` times the mean value of a completion's steps. With weight 0 the outcome is unchanged.

    Raises ValueError for an ``outcome`` that learns.
    """

    outcome: Reward
    task: Task
    """It finds the steps in a completion."""
    weight: float

    values_steps = True

    def __post_init__(self) -> None:
        refuse_learning(type(self).__name__, self.outcome)


class StateReward(StepReward, ABC):
    """A reward whose values of steps are labels of the states after them. Countdown only."""

    values_starts = True
    part: ClassVar[str]
    """The name of its part of a credit."""

    @abstractmethod
    def label(self, problem: Problem, state: Sequence[int]) -> float:
        """Returns the value of a state."""

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        steps = read_steps(self.task, rollouts)
        values = [
            [(step, self.label(rollouts.problem_of(row), step.state)) for step in legal]
            for row, legal in enumerate(steps.legal)
        ]
        starts = [self.label(problem, problem.fields["numbers"]) for problem in rollouts.problems]
        credit, illegal = self.outcome(rollouts), steps.illegal
        return add_step_credit(
            credit, rollouts, values, illegal=illegal, name=self.part, weight=self.weight, starts=starts
        )


def add_step_credit(
    credit: Credit,
    rollouts: RolloutBatch,
    values: Sequence[Sequence[StepValue]],
    *,
    illegal: Sequence[Sequence[Step]],
    name: str,
    weight: float,
    starts: Sequence[float] | None = None,
    finished: Sequence[Sequence[bool]] | None = None,
) -> Credit:
    """Returns ``credit`` with the part ``name``: a rollout's mean value (0 without steps) and its step credit.

    It also adds the metrics that show how well the values predict the verdicts.

    Args:
        values: the values of the legal steps of every rollout.
        illegal: the illegal steps of every rollout that are compared with the legal ones.
        weight: of the mean value in the outcome.
        starts: the value of each of the P problems before any step.
        finished: for each value, whether the metrics leave it out; None: those of states in which no move is left.

    Raises ValueError if ``credit`` already has a part of that name or values steps.
    """
    if name in credit.parts or credit.steps is not None:
        raise ValueError(f"reward {name} cannot shape {credit.named}: one part of a reward may value steps")
    part = rollouts.old_log_probs.new_tensor([mean([value for _, value in row]) for row in values])
    before = start_steps(rollouts)
    steps = [_on_tokens(*row) for row in zip(rollouts.token_spans, values, before, strict=True)]
    judged = []
    for index, (row, start) in enumerate(zip(values, before, strict=True)):
        depths = [depth_of(step, place, start) for place, (step, _) in enumerate(row)]
        ended = [depth == FINISHED for depth in depths] if finished is None else finished[index]
        judged.append([Judged(*step) for step in zip([value for _, value in row], depths, ended, strict=True)])
    seen = step_metrics(judged, steps, credit.verdicts, rollouts.group_size)
    return replace(
        credit.plus(name, part, weight=weight, metrics=seen),
        steps=steps,
        illegal=[_forbidden(rollouts.token_spans[i], row) for i, row in enumerate(illegal)],
        starts=None if starts is None else [starts[row // rollouts.group_size] for row in range(len(rollouts))],
    )


def mean(values: Sequence[float]) -> float:
    """Returns the mean, 0 without values."""
    return sum(values) / len(values) if values else 0.0


def _on_tokens(spans: Sequence[tuple[int, int]], values: Sequence[StepValue], start: Step | None) -> list[StepCredit]:
    """Places step values on the tokens that begin inside each step; steps without such a token are left out."""
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
                    settled_token=_settling_token(spans, step),
                    lost=step.lost,
                )
            )
        seen.add(state)
    return placed


def _forbidden(spans: Sequence[tuple[int, int]], steps: Sequence[Step]) -> list[StepCredit]:
    """Returns the credit of illegal steps: value 0, at the depth that the step would have reached."""
    placed = [(step, tokens_of_span(spans, step.start, step.end)) for step in steps]
    return [
        StepCredit(
            *tokens,
            0.0,
            depth=len(step.state) - 1,
            legal=False,
            settled_token=_settling_token(spans, step),
            lost=step.lost,
        )
        for step, tokens in placed
        if tokens is not None
    ]


def _settling_token(spans: Sequence[tuple[int, int]], step: Step) -> int:
    return token_of_character(spans, (step.end if step.settled is None else step.settled) - 1)


def identity_of(step: Step) -> Hashable:
    """Returns the numbers left, regardless of order; states of other kinds as text."""
    return tuple(sorted(step.state)) if isinstance(step.state, list | tuple) else str(step.state)


def depth_of(step: Step, index: int, start: Step | None) -> int:
    """Returns the count of numbers left after the step; −``index`` without ``start`` or if states are not sequences.

    Both decrease from step to step, and only a game's last number has depth 1. In arithmetic the state holds the
    results written so far: its length would begin at 1 and grow.
    """
    return len(step.state) if start is not None and isinstance(step.state, list | tuple) else -index

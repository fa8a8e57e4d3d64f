"""Step values:  r = outcome + weight · mean of the values of the legal steps, and the values themselves on tokens.

The reward uses the mean, because a sum would reward long walks through good states. Even the mean shifts the optimum
and rewards stopping after a good step; ``GameLevelReward`` does not. ``advantages.Process`` uses the values step by
step; with weight 0 the outcome stays unchanged there.

Metrics compare the values with the verdicts on the rollouts that contain the steps:

    steps/auroc                 for two steps of equal depth, one of a correct and one of a wrong rollout: how often the
                                first has the higher value; ties count half
    steps/auroc_siblings        the same for steps of the same problem, which a per-step advantage compares
    steps/auroc_depth<d>        the same for the steps at one depth
    steps/outcome_correlation   correlation of a rollout's mean value with its verdict, both relative to the group's
                                mean; rollouts without a value are left out
    steps/return                mean over rollouts of their mean value (0 without any), for every reward of steps
    steps/repeated              share of steps into a state in which the rollout had been before

Finished states count only in the last metric: their value is the verdict and would hide the quality of the values of
open states. A metric that is undefined, for example because all rollouts are correct or none is, is absent.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from contrastive_reasoning.distributed import gather
from contrastive_reasoning.rewards.base import Credit, Reward, StepCredit, refuse_learning
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.rollout.spans import token_of_character, tokens_of_span
from contrastive_reasoning.tasks.base import Problem, Step, Task, Verdict

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


class StateReward(ABC):
    """``outcome`` plus ``weight`` times the mean label of the states after legal steps. Countdown only."""

    values_steps = True
    values_starts = True
    part: str
    """The name of its part of a credit."""

    def __init__(self, *, outcome: Reward, task: Task, weight: float) -> None:
        refuse_learning(type(self).__name__, outcome)
        self.outcome = outcome
        self.task = task
        self.weight = weight

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
        credit: the credit of the reward that is shaped.
        rollouts: the rewarded batch.
        values: the values of the legal steps of every rollout.
        illegal: the illegal steps of every rollout that are compared with the legal ones.
        name: the name of the part.
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
        credit,
        outcome=credit.outcome + weight * part,
        parts={**credit.parts, name: part},
        steps=steps,
        illegal=[_forbidden(rollouts.token_spans[i], row) for i, row in enumerate(illegal)],
        starts=None if starts is None else [starts[row // rollouts.group_size] for row in range(len(rollouts))],
        metrics={**credit.metrics, **seen},
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


class Judged(NamedTuple):
    """One legal step of a rollout, like ``StepCredit`` without its tokens."""

    value: float
    depth: int
    finished: bool
    """No move is left after the step."""


def step_metrics(
    judged: Sequence[Sequence[Judged]],
    placed: Sequence[Sequence[StepCredit]],
    verdicts: Sequence[Verdict] | None,
    group_size: int,
) -> dict[str, float]:
    """Returns the metrics above for the rollout batch of all ranks, all of which must call this.

    ``placed`` are the valued steps (``judged``) that lie on tokens. Without verdicts only the last two are computed.
    """
    # a rollout whose judging failed does not count; its row stays, because groups would shift without it
    failed = {row for row, verdict in enumerate(verdicts or []) if not verdict.judged}
    again = [step.again for row, steps in enumerate(placed) if row not in failed for step in steps]
    right = None if verdicts is None else [verdict.correct for verdict in verdicts]
    known = [[] if row in failed else steps for row, steps in enumerate(judged)]
    # gathered first, because the mean of the ranks' AUROCs is not the AUROC over all steps
    of_ranks = gather((known, again, right, len(judged) - len(failed)))
    judged = [row for rows, _, _, _ in of_ranks for row in rows]
    visits = [step for _, steps, _, _ in of_ranks for step in steps]
    means, counted = [_mean_undecided(row) for row in judged], sum(count for _, _, _, count in of_ranks)
    metrics = {"steps/return": sum(mean or 0.0 for mean in means) / counted} if counted else {}
    metrics |= {"steps/repeated": sum(visits) / len(visits)} if visits else {}
    if right is None:
        return metrics
    right = [correct for _, _, rows, _ in of_ranks for correct in rows or []]
    valued = [row for row, mean in enumerate(means) if mean is not None]
    correlation = within_group_correlation(
        torch.tensor([means[row] for row in valued], dtype=torch.float64),
        torch.tensor([right[row] for row in valued], dtype=torch.float64),
        torch.tensor(valued, dtype=torch.long) // group_size,
    )
    found = {**_aurocs(judged, torch.tensor(right), group_size), "steps/outcome_correlation": correlation}
    return metrics | {name: value for name, value in found.items() if value is not None}


def with_step_metrics(credit: Credit, judged: Sequence[Sequence[Judged]], group_size: int) -> Credit:
    """Returns ``credit`` with its step metrics replaced by those of ``judged``."""
    kept = {name: value for name, value in credit.metrics.items() if not name.startswith("steps/")}
    steps = credit.steps or []
    seen = step_metrics(judged, steps, credit.verdicts, group_size)
    return replace(credit, metrics={**kept, **seen})


def _mean_undecided(steps: Sequence[Judged]) -> float | None:
    """Returns the mean value of the steps after which a move is left; None without any."""
    values = [step.value for step in steps if not step.finished]
    return sum(values) / len(values) if values else None


def _aurocs(
    judged: Sequence[Sequence[Judged]], correct: Bool[Tensor, " B"], group_size: int
) -> dict[str, float | None]:
    rows = [(index, step) for index, row in enumerate(judged) for step in row if not step.finished]
    if not rows:
        return {}
    of = torch.tensor([index for index, _ in rows])
    values = torch.tensor([step.value for _, step in rows], dtype=torch.float64)
    depth, right = torch.tensor([step.depth for _, step in rows]), correct[of]
    siblings = (of // group_size) * int(depth.max() - depth.min() + 1) + depth  # one number per (problem, depth)
    found = {"steps/auroc": auroc(values, right, depth), "steps/auroc_siblings": auroc(values, right, siblings)}
    for at in depth.unique().tolist():
        here = depth == at
        found[f"steps/auroc_depth{at}"] = auroc(values[here], right[here], depth[here])
    return found


def auroc(
    values: Float[Tensor, " N"], correct: Bool[Tensor, " N"], stratum: Int[Tensor, " N"] | None = None
) -> float | None:
    """Returns the share of (correct, wrong) pairs within a stratum that are ranked correctly (Mann–Whitney statistic).

    Ties count half. Without strata all pairs count. The result is None if no stratum has both kinds.
    """
    stratum = torch.zeros(len(values), dtype=torch.long) if stratum is None else stratum
    _, of, sizes = stratum.unique(return_inverse=True, return_counts=True)
    levels, level = values.unique(return_inverse=True)
    _, place, equals = (of * len(levels) + level).unique(return_inverse=True, return_counts=True)
    # ranks from 1, equal values share their mean rank; the count of rows in earlier strata is subtracted
    ranks = (equals.cumsum(0) - (equals - 1) / 2).double()[place] - (sizes.cumsum(0) - sizes)[of]
    positives = torch.zeros(len(sizes), dtype=torch.float64).index_add(0, of, correct.double())
    pairs = (positives * (sizes - positives)).sum()
    won = (ranks * correct).sum() - (positives * (positives + 1) / 2).sum()
    return (won / pairs).item() if pairs > 0 else None


def within_group_correlation(
    first: Float[Tensor, " N"], second: Float[Tensor, " N"], group: Int[Tensor, " N"]
) -> float | None:
    """Returns Pearson's correlation of both after subtracting group means; None if either is then constant."""
    _, of, sizes = group.unique(return_inverse=True, return_counts=True)
    a, b = (_left_of_mean(values.double(), of, sizes) for values in (first, second))
    varied = bool(a.any()) and bool(b.any())
    return (a * b).sum().div(a.norm() * b.norm()).clamp(-1, 1).item() if varied else None


def _left_of_mean(values: Float[Tensor, " N"], of: Int[Tensor, " N"], sizes: Int[Tensor, " P"]) -> Float[Tensor, " N"]:
    """Subtracts the group means; exactly 0 if all values of a group are equal, despite rounding of the mean."""
    empty = values.new_zeros(len(sizes))
    low, high = (empty.scatter_reduce(0, of, values, how, include_self=False) for how in ("amin", "amax"))
    means = empty.index_add(0, of, values) / sizes
    return (values - means[of]) * (low != high)[of]

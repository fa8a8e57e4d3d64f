"""Step values:  r = outcome + weight · mean of the values of the legal steps, and the values themselves on tokens.

The mean, not the sum: a sum of levels would pay for long walks through good states. Even the mean moves the optimum,
and pays for breaking off after a good step (``GameLevelReward`` does not); ``advantages.Process`` uses the values step
by step, and weight 0 leaves the outcome alone there.

What the values are worth is measured against what the verifier found of the rollouts that went through the steps:

    steps/auroc                 of two steps equally deep, one of a correct rollout and one of a wrong one, how often
                                the former has the higher value; ties count half
    steps/auroc_siblings        the same, of steps of the same problem: what a per-step advantage compares
    steps/auroc_depth<d>        the same, of the steps at one depth
    steps/outcome_correlation   of a rollout's mean value with its verdict, both against the group's mean; rollouts
                                without a value are left out
    steps/return                the mean of a rollout's mean value (0 without any), whichever reward gave it
    steps/repeated              the share of steps into a state where the rollout had been before

A finished state counts in the last alone: its value is the verdict, which anyone can read off, and would hide how good
the values were while all was open. What is not defined — all rollouts correct, or none — is absent.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from contrastive_reasoning.distributed import gather
from contrastive_reasoning.rewards.base import Credit, Reward, StepCredit
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
    """Those that the rules forbade, each with the state that it left unchanged. Only where states are the numbers left:
    elsewhere it is unknown where a step would have led. After the last number there is no step to make."""


def read_steps(task: Task, rollouts: RolloutBatch) -> Steps:
    """The steps of every rollout."""
    parsed = rollouts.steps_by(task)
    return Steps(
        legal=[[step for step in steps if step.legal] for steps in parsed],
        illegal=[
            [] if start is None else [step for step in steps if not step.legal and len(step.state) > 1]
            for steps, start in zip(parsed, start_steps(rollouts), strict=True)
        ],
    )


def legal_steps(task: Task, rollouts: RolloutBatch) -> list[list[Step]]:
    """The legal steps of every rollout, in order of writing."""
    return read_steps(task, rollouts).legal


def start_of(problem: Problem) -> Step | None:
    """The state before the first step, as a step of no characters; None for a task that names no such state."""
    numbers = problem.fields.get("numbers")
    return None if numbers is None else Step(start=0, end=0, state=tuple(numbers), legal=True)


def start_steps(rollouts: RolloutBatch) -> list[Step | None]:
    """``start_of`` the problem of every rollout."""
    return [start_of(problem) for problem in rollouts.problems for _ in range(rollouts.group_size)]


def shape_by_states(
    outcome: Reward,
    task: Task,
    rollouts: RolloutBatch,
    value: Callable[[Problem, Sequence[int]], float],
    *,
    name: str,
    weight: float,
) -> Credit:
    """``shaped`` by ``value(problem, state)`` of the state after every legal step and before any. Countdown only."""
    steps = read_steps(task, rollouts)
    values = [
        [(step, value(rollouts.problem_of(row), step.state)) for step in legal] for row, legal in enumerate(steps.legal)
    ]
    starts = [value(problem, problem.fields["numbers"]) for problem in rollouts.problems]
    return shaped(outcome(rollouts), rollouts, values, illegal=steps.illegal, name=name, weight=weight, starts=starts)


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

    How well the values predict which rollouts the verifier accepts is added to the metrics.

    Args:
        credit: of the reward that is shaped.
        rollouts: what is rewarded.
        values: of the legal steps of every rollout.
        illegal: the steps of every rollout that the rules forbade and that are compared with those.
        name: of the part.
        weight: of the mean value in the outcome.
        starts: the value of each of the P problems before any step.

    Raises ValueError where ``credit`` has a part of that name or values steps already.
    """
    if name in credit.parts or credit.steps is not None:
        raise ValueError(f"reward {name} cannot shape {credit.named}: one part of a reward may value steps")
    part = rollouts.old_log_probs.new_tensor([mean([value for _, value in row]) for row in values])
    before = start_steps(rollouts)
    steps = [_on_tokens(*row) for row in zip(rollouts.token_spans, values, before, strict=True)]
    judged = []
    for row, start in zip(values, before, strict=True):
        depths = [depth_of(step, index, start) for index, (step, _) in enumerate(row)]
        judged.append([Judged(value, depth, depth == FINISHED) for (_, value), depth in zip(row, depths, strict=True)])
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
    """0 without values."""
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


def identity_of(step: Step) -> Hashable:
    """The numbers left, in any order; a state of another kind as it is written."""
    return tuple(sorted(step.state)) if isinstance(step.state, list | tuple) else str(step.state)


def depth_of(step: Step, index: int, start: Step | None) -> int:
    """How many numbers are left after the step; −``index`` where states are no numbers left, or there is no ``start``.

    Either falls from step to step, and 1 is a game's last number alone: results that are written one after another, as
    the states of arithmetic are, would begin at 1 and grow.
    """
    return len(step.state) if start is not None and isinstance(step.state, list | tuple) else -index


class Judged(NamedTuple):
    """One legal step of a rollout, as ``StepCredit`` without its tokens."""

    value: float
    depth: int
    finished: bool
    """No move is left after it."""


def step_metrics(
    judged: Sequence[Sequence[Judged]],
    placed: Sequence[Sequence[StepCredit]],
    verdicts: Sequence[Verdict] | None,
    group_size: int,
) -> dict[str, float]:
    """The metrics above, of one rollout batch: that of all ranks, which all must call this.

    ``placed`` are the valued steps (``judged``) that lie on tokens. Without verdicts only the last two are known.
    """
    # a rollout whose judging failed counts nowhere; its row stays, or groups would shift
    failed = {row for row, verdict in enumerate(verdicts or []) if not verdict.judged}
    again = [step.again for row, steps in enumerate(placed) if row not in failed for step in steps]
    right = None if verdicts is None else [verdict.correct for verdict in verdicts]
    known = [[] if row in failed else steps for row, steps in enumerate(judged)]
    # the mean of the ranks' AUROCs is not that of their steps
    of_ranks = gather((known, again, right, len(judged) - len(failed)))
    judged = [row for rows, _, _, _ in of_ranks for row in rows]
    visits = [step for _, steps, _, _ in of_ranks for step in steps]
    means, counted = [_undecided(row) for row in judged], sum(count for _, _, _, count in of_ranks)
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
    """``credit`` with the metrics of these steps in place of those that it came with."""
    kept = {name: value for name, value in credit.metrics.items() if not name.startswith("steps/")}
    steps = credit.steps or []
    seen = step_metrics(judged, steps, credit.verdicts, group_size)
    return replace(credit, metrics={**kept, **seen})


def _undecided(steps: Sequence[Judged]) -> float | None:
    """The mean value of the steps that leave a move; None without any."""
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
    siblings = (of // group_size) * int(depth.max() - depth.min() + 1) + depth  # one number for each pair of them
    found = {"steps/auroc": auroc(values, right, depth), "steps/auroc_siblings": auroc(values, right, siblings)}
    for at in depth.unique().tolist():
        here = depth == at
        found[f"steps/auroc_depth{at}"] = auroc(values[here], right[here], depth[here])
    return found


def auroc(
    values: Float[Tensor, " N"], correct: Bool[Tensor, " N"], stratum: Int[Tensor, " N"] | None = None
) -> float | None:
    """The share of (correct, wrong) pairs within a stratum that are ranked right, by the Mann–Whitney statistic.

    Ties count half. Without strata all pairs count; None where no stratum has both kinds.
    """
    stratum = torch.zeros(len(values), dtype=torch.long) if stratum is None else stratum
    _, of, sizes = stratum.unique(return_inverse=True, return_counts=True)
    table = torch.stack([of.double(), values.double()])
    _, place, equals = torch.unique(table, dim=1, return_inverse=True, return_counts=True)
    # ranks from 1, the mean rank where values are equal; one stratum after another, so the earlier ones are taken off
    ranks = (equals.cumsum(0) - (equals - 1) / 2).double()[place] - (sizes.cumsum(0) - sizes)[of]
    positives = torch.zeros(len(sizes), dtype=torch.float64).index_add(0, of, correct.double())
    pairs = (positives * (sizes - positives)).sum()
    won = (ranks * correct).sum() - (positives * (positives + 1) / 2).sum()
    return (won / pairs).item() if pairs > 0 else None


def within_group_correlation(
    first: Float[Tensor, " N"], second: Float[Tensor, " N"], group: Int[Tensor, " N"]
) -> float | None:
    """Pearson's correlation of what is left of both after the mean of their group; None where either is constant."""
    _, of, sizes = group.unique(return_inverse=True, return_counts=True)
    a, b = (_left_of_mean(values.double(), of, sizes) for values in (first, second))
    varied = bool(a.any()) and bool(b.any())
    return (a * b).sum().div(a.norm() * b.norm()).clamp(-1, 1).item() if varied else None


def _left_of_mean(values: Float[Tensor, " N"], of: Int[Tensor, " N"], sizes: Int[Tensor, " P"]) -> Float[Tensor, " N"]:
    """Values less the mean of their group; exactly 0 where all of a group are equal, whatever the mean rounds to."""
    empty = values.new_zeros(len(sizes))
    low, high = (empty.scatter_reduce(0, of, values, how, include_self=False) for how in ("amin", "amax"))
    means = empty.index_add(0, of, values) / sizes
    return (values - means[of]) * (low != high)[of]

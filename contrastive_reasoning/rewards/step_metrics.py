"""What values of steps are worth, against what the verifier said of the rollouts that went through them.

    steps/auroc                 of two steps equally deep, one of a correct rollout and one of a wrong one, how often
                                the former has the higher value; ties count half
    steps/auroc_siblings        the same, of steps of the same problem: what a per-step advantage compares
    steps/auroc_depth<d>        the same, of the steps at one depth
    steps/outcome_correlation   of a rollout's mean value with its verdict, both against the group's mean; rollouts
                                without a value are left out
    steps/return                the mean of a rollout's mean value (0 without any), whichever reward gave it
    steps/repeated              the share of steps into a state where the rollout had been before

A finished state counts in the last alone: its value is the verdict, which anyone can read off, and would hide what
was said while all was open. What is not defined — all rollouts correct, or none — is absent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from contrastive_reasoning.distributed import gather
from contrastive_reasoning.rewards.base import Credit, StepCredit
from contrastive_reasoning.tasks.base import Verdict

FINISHED = 1
"""Depth of a state in which no move is left."""


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
    """The metrics above, of one rollout batch: on ranks, which all must ask, of that of all of them.

    Args:
        judged: the valued steps of every rollout; one whose judging failed counts nowhere.
        placed: those of them that lie on tokens.
        verdicts: on every rollout; without them only the last two are known.
        group_size: G.
    """
    # where the judging failed nothing is known of the steps; the row stays, or groups would shift
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


def judged_anew(credit: Credit, judged: Sequence[Sequence[Judged]], group_size: int) -> Credit:
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

    Args:
        values: of each step.
        correct: whether its rollout was.
        stratum: pairs of different strata do not count; None: all are of one.

    Returns:
        A number in [0, 1], ties counting half; None where no stratum has both kinds.
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

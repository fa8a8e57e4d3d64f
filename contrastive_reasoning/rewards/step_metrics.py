"""How well the values of steps predict the verdicts on the rollouts that contain the steps.

    steps/auroc                 for two steps of equal depth, one of a correct and one of a wrong rollout: how often the
                                first has the higher value; ties count half
    steps/auroc_siblings        the same for steps of the same problem, which a per-step advantage compares
    steps/auroc_depth<d>        the same for the steps at one depth
    steps/outcome_correlation   correlation of a rollout's mean value with its verdict, both relative to the group's
                                mean; rollouts without a value are left out
    steps/return                mean over rollouts of their mean value (0 without any), for every reward of steps
    steps/repeated              share of steps into a state in which the rollout had been before

Finished states count only in the last metric: their value is the verdict and would hide the quality of the values of
open states. A metric that is undefined, for example because all rollouts are correct or none is, is absent. Of these
``advantages.TrustGate`` alone reads one, ``steps/auroc_siblings``; the others are only logged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from contrastive_reasoning.distributed import gather
from contrastive_reasoning.rewards.base import StepCredit
from contrastive_reasoning.tasks.base import Verdict


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

"""The states that rollouts went through, each with the share of its rollouts that succeeded: what calibration reads."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from contrastive_reasoning.critics.calibration import Examples
from contrastive_reasoning.rewards.shaping import depth_of, identity_of, start_of
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.tasks.base import Step


def visited_states(
    rollouts: RolloutBatch,
    steps: Sequence[Sequence[Step]],
    logits: Sequence[Sequence[float]],
    starts: Sequence[float] | None,
    correct: Bool[Tensor, " B"],
    unjudged: Collection[int],
) -> Examples:
    """Each (problem, state) once, the problems' own states included where their logits are known.

    A rollout counts once in a state, however often it came back. Where a critic sees more than the state, the state's
    logit is the mean over its visits.

    Args:
        rollouts: the batch.
        steps: the legal steps of every rollout.
        logits: of each of them.
        starts: of each of the P problems before any step.
        correct: the verdicts.
        unjudged: rows without one, which count nowhere.
    """
    met: dict[tuple[int, object], list[tuple[float, int, bool]]] = {}
    for row, right in enumerate(correct.tolist()):
        if row in unjudged:
            continue
        group = row // rollouts.group_size
        start = start_of(rollouts.problem_of(row))
        own = {
            identity_of(step): (logit, depth_of(step, index, start), right)
            for index, (step, logit) in enumerate(zip(steps[row], logits[row], strict=True))
        }
        if starts is not None and start is not None:
            own[identity_of(start)] = (starts[group], depth_of(start, 0, start), right)
        for state, visit in own.items():
            met.setdefault((group, state), []).append(visit)
    return _examples(list(met.values()))


def _examples(states: Sequence[Sequence[tuple[float, int, bool]]]) -> Examples:
    return Examples(
        logits=_column([_mean([logit for logit, _, _ in visits]) for visits in states]),
        depth=torch.tensor([visits[0][1] for visits in states], dtype=torch.long),
        share=_column([_mean([float(right) for _, _, right in visits]) for visits in states]),
        visits=_column([float(len(visits)) for visits in states]),
    )


def _column(values: Sequence[float]) -> Float[Tensor, " N"]:
    return torch.tensor(values, dtype=torch.float64)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
